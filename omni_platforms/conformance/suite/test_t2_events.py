"""T2: events: what they cover, who waits for them, and who does not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import BUSY_SECONDS, Rig, in_thread, wait_until
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = [tier("T2"), needs(Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS)]

NUMBERS = 1 << 20
_GENERIC = "Record a torch.Event: a generic stream ignores a vendor's event class without a word."


def recorded(platform: OmniPlatform, stream: torch.Stream | None = None) -> torch.Event:
    """Return an event of the platform; the capability says that there is one."""
    event = platform.record_device_event(stream)
    assert event is not None
    return event


@remedy(_GENERIC)
def test_an_event_is_exactly_a_torch_event(rig: Rig, platform: OmniPlatform) -> None:
    """`record_device_event()` returns exactly a `torch.Event`, not a vendor's subclass."""
    kind = type(recorded(platform))
    assert kind is torch.Event, f"it is a {kind.__module__}.{kind.__qualname__}"


def _hand_over(
    rig: Rig, platform: OmniPlatform, wait: Callable[[torch.Stream, torch.Event], object]
) -> None:
    """The current stream writes a large buffer, slowly and its end last; a side stream reads it."""
    numbers = NUMBERS if rig.simulation is None else 512
    end = numbers // 100
    source = torch.zeros(numbers, device=rig.device)
    rig.keep_busy()
    source[:-end].fill_(7)
    source[-end:].fill_(7)
    event = recorded(platform)
    side = torch.Stream(device=rig.device)
    wait(side, event)
    with rig.entered(side):
        copy = source.clone()
    side.synchronize()
    right = int(copy.eq(7).sum())
    assert right == numbers, (
        f"{numbers - right} of {numbers} numbers are old: the {type(side).__module__}."
        f"{type(side).__qualname__} did not wait for the {type(event).__module__}."
        f"{type(event).__qualname__}"
    )


@remedy(_GENERIC + " Record it after the work, on the stream that does it.")
@pytest.mark.parametrize("way", ["torch.Stream.wait_event", "stream_wait_event"])
def test_a_stream_waits_for_all_that_an_event_covers(
    rig: Rig, platform: OmniPlatform, way: str
) -> None:
    """A stream that waits for an event sees every byte that was written before its record."""
    own = platform.stream_wait_event
    wait = own if way == "stream_wait_event" else lambda stream, event: stream.wait_event(event)
    rig.check(lambda: _hand_over(rig, platform, wait))


@remedy("Keep OmniPlatform.stream_wait_event, which checks the exact type.")
def test_stream_wait_event_refuses_what_torch_would_ignore(
    rig: Rig, platform: OmniPlatform
) -> None:
    """`stream_wait_event()` raises `TypeError` for anything but exactly a `torch.Event`."""

    class Subclass(torch.Event):
        """What every vendor's event class is to torch."""

    side = torch.Stream(device=rig.device)
    for wrong in (object(), Subclass(rig.device)):
        with pytest.raises(TypeError):
            platform.stream_wait_event(side, wrong)  # type: ignore[arg-type]


@remedy("Record on the stream that is given, and on the current one only without.")
def test_an_event_is_recorded_on_the_stream_given(rig: Rig, platform: OmniPlatform) -> None:
    """`record_device_event(stream)` covers that stream's work; without a stream, the current's.

    It is complete when that work is, and not before.
    """
    side = torch.Stream(device=rig.device)
    rig.keep_busy(side)
    on_side, on_current = recorded(platform, side), recorded(platform)
    wait_until(on_current.query, "an event of an idle stream is complete")
    assert not on_side.query()
    torch.accelerator.set_stream(side)
    rig.keep_busy(side)
    assert not recorded(platform).query()


@remedy("Some runtimes refuse it; leave such a wait out in stream_wait_event().")
def test_a_stream_may_wait_for_its_own_event(rig: Rig, platform: OmniPlatform) -> None:
    """`stream_wait_event(stream, event)` works for an event of that same stream."""
    side = torch.Stream(device=rig.device)
    platform.stream_wait_event(side, recorded(platform, side))
    side.synchronize()
    assert side.query(), "the stream waits for itself"


def _primitives(rig: Rig, platform: OmniPlatform) -> dict[str, Callable[[], object]]:
    side = torch.Stream(device=rig.device)
    done = recorded(platform, side)

    def enter() -> None:
        with platform.stream_context(side):
            pass

    return {
        "record_device_event": platform.record_device_event,
        "create_side_stream": platform.create_side_stream,
        "stream_context": enter,
        "stream_wait_event": lambda: platform.stream_wait_event(side, recorded(platform)),
        "current_stream": platform.current_stream,
        "current_stream_key": lambda: platform.current_stream_key(rig.device),
        "set_device": lambda: platform.set_device(0),
        "query": done.query,
        "is_capturing": platform.is_capturing,
        "memory_info": lambda: platform.memory_info(0),
    }


@pytest.mark.parametrize(
    "primitive",
    [
        "record_device_event", "create_side_stream", "stream_context", "stream_wait_event",
        "current_stream", "current_stream_key", "set_device", "query", "is_capturing",
        "memory_info",
    ],
)  # fmt: skip
@remedy("Look for a synchronize() in it, and for runtime calls that wait for the device.")
def test_a_primitive_does_not_make_the_host_wait(
    rig: Rig, platform: OmniPlatform, primitive: str
) -> None:
    """Recording, waiting on the device, changing streams and asking never block the host."""
    call = _primitives(rig, platform)[primitive]
    assert not rig.waits(call), f"{primitive}() waited for the device"


@remedy("Leave memory and kernels to torch's allocator and queues.")
def test_work_is_enqueued_without_a_wait(rig: Rig, platform: OmniPlatform) -> None:
    """Making a tensor and computing with it does not make the host wait."""
    value = torch.ones(1024, device=rig.device)
    assert not rig.waits(lambda: torch.empty_like(value).copy_(value).mul_(2))


@remedy("Wait by asking the event; see omni_platforms.platform.waiting.")
def test_synchronize_event_waits_until_the_event_is_complete(
    rig: Rig, platform: OmniPlatform
) -> None:
    """`synchronize_event(event)` blocks the host until the event is complete; returns `True`."""
    work = rig.keep_busy()
    event = recorded(platform)
    assert in_thread(lambda: platform.synchronize_event(event)) is True
    assert work.done()


@remedy("Return when the time is over: a wait that cannot end hangs the engine.")
def test_synchronize_event_gives_up_in_time(rig: Rig, platform: OmniPlatform) -> None:
    """`synchronize_event(event, timeout)` returns `False` once `timeout` seconds are over."""
    rig.keep_busy()
    event = recorded(platform)
    start = time.perf_counter()
    assert in_thread(lambda: platform.synchronize_event(event, 0.0)) is False
    assert time.perf_counter() - start < BUSY_SECONDS


@remedy("Known on some stacks: poll with query(), or drain the stream.")
def test_the_events_own_synchronize_returns(rig: Rig, platform: OmniPlatform) -> None:
    """`event.synchronize()`, which other code calls, returns when the work is done."""
    work = rig.keep_busy()
    event = recorded(platform)
    in_thread(event.synchronize)
    assert work.done()


@remedy("Wait by asking with pauses: torch ignores Event(blocking=True).")
def test_waiting_for_an_event_leaves_the_core_alone(rig: Rig, platform: OmniPlatform) -> None:
    """A thread in `synchronize_event()` takes less than a fifth of a core."""
    if rig.simulation is not None:
        pytest.skip("a simulated device computes on the waiting thread")
    rig.keep_busy()
    event = recorded(platform)

    def wait() -> float:
        cpu, wall = time.thread_time(), time.perf_counter()
        platform.synchronize_event(event)
        return (time.thread_time() - cpu) / (time.perf_counter() - wall)

    assert in_thread(wait) < 0.2
