"""T3: copies between device and host, and the events that cover them."""

from __future__ import annotations

import contextlib

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig, wait_until
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = tier("T3")

ASYNC = needs(Capability.PINNED_MEMORY, Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS)
# What every accelerator has; the rarer types are a matter of models.
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32,
]  # fmt: skip


def _pinned_like(platform: OmniPlatform, source: torch.Tensor) -> torch.Tensor:
    memory = platform.pinned_empty(source.shape, source.dtype)
    assert memory is not None
    return memory


@ASYNC
@remedy("The event does not cover the copy engine: drain the stream, or copy with a blocking call.")
@pytest.mark.parametrize("nbytes", [1, 4097, (1 << 20) + 3])
def test_an_event_covers_the_copy_before_it(rig: Rig, platform: OmniPlatform, nbytes: int) -> None:
    """When an event recorded after a copy to pinned memory is complete, every byte is there."""

    def scenario() -> None:
        source = torch.zeros(nbytes, dtype=torch.uint8, device=rig.device)
        target = _pinned_like(platform, source).fill_(255)
        rig.keep_busy()
        source.fill_(7)
        target.copy_(source, non_blocking=True)
        event = platform.record_device_event()
        assert event is not None
        assert platform.synchronize_event(event, DEADLINE_SECONDS)
        wrong = int(target.ne(7).sum())
        assert wrong == 0, f"event does not cover D2H: {wrong} of {nbytes} bytes are old"

    rig.check(scenario)


@ASYNC
@remedy("The side stream must be another queue of the device, and the copy must run there.")
def test_a_copy_on_a_side_stream_overtakes_a_busy_one(rig: Rig, platform: OmniPlatform) -> None:
    """A copy inside `stream_context(side)` is done while the stream outside is still busy."""
    source = torch.full((4096,), 7.0, device=rig.device)
    target = _pinned_like(platform, source)
    rig.finish()
    work = rig.keep_busy()
    side = platform.create_side_stream()
    with platform.stream_context(side):
        target.copy_(source, non_blocking=True)
        event = platform.record_device_event()
    assert event is not None
    wait_until(event.query, "the copy is done")
    assert not work.done()


@remedy("Pin the memory: torch copies to ordinary memory with a wait of the host.")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("pinned_empty", marks=needs(Capability.PINNED_MEMORY)),
        pytest.param("register_host_memory", marks=needs(Capability.HOST_REGISTRATION)),
    ],
)
def test_a_copy_to_pinned_memory_does_not_make_the_host_wait(
    accelerator: Rig, platform: OmniPlatform, kind: str
) -> None:
    """`copy_(..., non_blocking=True)` into pinned or registered memory does not block."""
    source = torch.ones(1 << 20, dtype=torch.uint8, device=accelerator.device)
    with contextlib.ExitStack() as stack:
        if kind == "pinned_empty":
            target = _pinned_like(platform, source)
        else:
            registered = platform.register_host_memory(bytearray(source.nbytes))
            assert registered is not None
            target = stack.enter_context(registered).tensor
        stack.callback(accelerator.finish)
        assert not accelerator.waits(lambda: target.copy_(source, non_blocking=True))


@remedy("The runtime reads the source after the call returned: keep it, or stage it.")
def test_ordinary_memory_may_be_dropped_after_a_copy_from_it(
    accelerator: Rig, platform: OmniPlatform
) -> None:
    """Ordinary host memory can be let go, or overwritten, once a copy from it has returned."""

    def scenario() -> None:
        source = torch.full((4096,), 3.0)
        accelerator.keep_busy()
        there = source.to(accelerator.device, non_blocking=True)
        source.fill_(9.0)
        del source
        assert there.cpu().eq(3.0).all()

    accelerator.check(scenario)


@remedy("A blocking copy must not return before the bytes are there.")
def test_a_blocking_copy_is_done_when_it_returns(rig: Rig, platform: OmniPlatform) -> None:
    """`tensor.to("cpu")` has all bytes when it returns: what every platform falls back to."""

    def scenario() -> None:
        source = torch.zeros(4097, device=rig.device)
        if not rig.on_cpu:
            rig.keep_busy()
        source.fill_(7)
        assert source.to("cpu").eq(7).all()

    rig.check(scenario) if not rig.on_cpu else scenario()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_survives_the_way_to_the_device_and_back(
    rig: Rig, platform: OmniPlatform, dtype: torch.dtype
) -> None:
    """Copies keep every bit of a type, NaNs and subnormal numbers among them."""
    bits = torch.arange(2048, dtype=torch.int32).mul(40503).bitwise_right_shift(3).to(torch.uint8)
    source = bits.bool() if dtype is torch.bool else bits.view(dtype)
    back = source.to(rig.device).to("cpu")
    assert back.dtype is dtype
    assert torch.equal(back.view(torch.uint8), source.view(torch.uint8))
