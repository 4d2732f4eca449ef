"""T2: streams, and the contexts that make them current."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch

from omni_platforms.conformance.marks import devices, needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig, in_thread
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = [tier("T2"), needs(Capability.SIDE_STREAMS)]


def side_stream(platform: OmniPlatform, device: int = 0, priority: int = 0) -> torch.Stream:
    """Return a new stream of the platform; the capability says that there is one."""
    stream = platform.create_side_stream(device, priority=priority)
    assert stream is not None
    return stream


def current(index: int = 0) -> torch.Stream:
    """Return torch's own view of the calling thread's current stream on a device."""
    return torch.accelerator.current_stream(index)


@remedy("Make a stream each time: torch.Stream(device=...).")
def test_side_streams_are_new_and_generic(rig: Rig, platform: OmniPlatform) -> None:
    """`create_side_stream()` returns a new `torch.Stream`, unlike the current one and the last."""
    streams = [side_stream(platform), side_stream(platform), current()]
    assert all(isinstance(stream, torch.Stream) for stream in streams)
    assert len({stream.stream_id for stream in streams}) == len(streams)


@remedy("Keep the current device and stream as they are while making one.")
def test_making_a_stream_changes_nothing_else(rig: Rig, platform: OmniPlatform) -> None:
    """`create_side_stream()` leaves the current device and the current stream as they are."""
    last = platform.device_count() - 1
    before = current()
    side_stream(platform, last)
    assert torch.accelerator.current_device_index() == 0
    assert current() == before


@devices(2)
@remedy("Hand the index to the stream; do not make it on the current device.")
def test_a_stream_is_on_the_device_asked_for(rig: Rig, platform: OmniPlatform) -> None:
    """`create_side_stream(device)` makes it on `device`, whatever the current device is."""
    assert side_stream(platform, 1).device == rig.on(1)
    torch.accelerator.set_device_index(1)
    stream = platform.create_side_stream()
    assert stream is not None
    assert stream.device == rig.on(1)
    assert side_stream(platform, 0).device == rig.on(0)


@needs(Capability.STREAM_PRIORITIES)
@remedy("Pass the priority on; a negative number is the higher priority in torch.")
def test_priorities_are_told_apart(rig: Rig, platform: OmniPlatform) -> None:
    """`create_side_stream(priority=-1)` makes a stream of a higher priority than `priority=0`."""
    high, normal = (_priority(rig, side_stream(platform, 0, p)) for p in (-1, 0))
    assert high < normal


def _priority(rig: Rig, stream: torch.Stream) -> int:
    """Return a stream's priority from the vendor's class for it, the lower the sooner."""
    if rig.simulation is not None:
        queue = rig.simulation.runtime.scheduler.queue((stream.device_index, stream.stream_id))
        return queue.priority
    wrapped = rig.module.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    try:
        return int(wrapped.priority)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"the vendor's streams do not tell their priority: {error}")


@remedy("Ask torch for the current stream of the calling thread, each time.")
def test_current_stream_is_the_threads_own(rig: Rig, platform: OmniPlatform) -> None:
    """`current_stream(device)` is the calling thread's; a new thread has its own."""
    first, side = current(), torch.Stream(device=rig.device)
    torch.accelerator.set_stream(side)
    assert platform.current_stream() == side
    assert platform.current_stream(0) == side
    assert in_thread(lambda: platform.current_stream(0)) == first


@remedy("Return the stream's id or handle.")
def test_a_stream_key_names_one_stream(rig: Rig, platform: OmniPlatform) -> None:
    """`current_stream_key(device)` is the same for a stream each time, another for another one."""
    keys = []
    first, side = current(), torch.Stream(device=rig.device)
    for stream in (first, side, first, side):
        torch.accelerator.set_stream(stream)
        keys.append(platform.current_stream_key(rig.device))
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]


@remedy("Set the stream with torch.accelerator.set_stream on entry and put it back on exit.")
def test_stream_context_makes_the_stream_current(rig: Rig, platform: OmniPlatform) -> None:
    """Inside `stream_context(stream)` the stream is current; then the one before is again."""
    before, side = current(), torch.Stream(device=rig.device)
    with platform.stream_context(side):
        assert current() == side
    assert current() == before
    with platform.stream_context(None):
        assert current() == before


@remedy("Put the stream back in __exit__ or in a finally clause.")
def test_stream_context_ends_with_an_exception_too(rig: Rig, platform: OmniPlatform) -> None:
    """An exception inside `stream_context` passes, and the stream before is current again."""
    before = current()
    with pytest.raises(KeyError), platform.stream_context(torch.Stream(device=rig.device)):
        raise KeyError("planted")
    assert current() == before


@devices(2)
@remedy("Save the current device on entry as well as the stream.")
def test_stream_context_brings_the_device_back(rig: Rig, platform: OmniPlatform) -> None:
    """A context of a stream on another device leaves device and both streams as they were."""
    before = [current(0), current(1)]
    with platform.stream_context(torch.Stream(device=rig.on(1))):
        assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_device_index() == 0
    assert [current(0), current(1)] == before


@remedy("Keep the previous stream in the context, not on the stream object (`with stream:` does).")
def test_two_threads_may_be_in_one_stream(rig: Rig, platform: OmniPlatform) -> None:
    """Two threads in one stream's context each get their own previous stream back."""
    shared, own = torch.Stream(device=rig.device), torch.Stream(device=rig.device)
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    found: list[torch.Stream] = []

    def first() -> None:
        torch.accelerator.set_stream(own)
        with platform.stream_context(shared):
            first_in.set()
            assert second_in.wait(DEADLINE_SECONDS)
        found.append(current())
        first_out.set()

    home = current()
    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    assert first_in.wait(DEADLINE_SECONDS)
    with platform.stream_context(shared):
        second_in.set()
        assert first_out.wait(DEADLINE_SECONDS)
    assert found == [own]
    assert current() == home


@remedy("Where the runtime has no switch, do not declare sync_debug.")
@needs(Capability.SYNC_DEBUG)
@pytest.mark.parametrize("mode", ["warn", "error"])
def test_sync_debug_reports_waits_of_the_host(rig: Rig, platform: OmniPlatform, mode: str) -> None:
    """Inside `sync_debug(mode)` a wait of the host warns or raises; afterwards it does neither."""
    value = torch.ones(1, device=rig.device)
    context = platform.sync_debug(mode)
    assert context is not None
    with context:
        if mode == "warn":
            with pytest.warns(UserWarning, match="synchroniz"):
                value.item()
        else:
            with pytest.raises(RuntimeError, match="synchroniz"):
                value.item()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value.item() == 1
