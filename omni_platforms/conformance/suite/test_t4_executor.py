"""T4: the async output executor end to end, on top of what T0 to T3 promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = tier("T4")

ASYNC = (Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS, Capability.PINNED_MEMORY)
SMALL, LARGE = 64, 20_000
"""Numbers in an output that shares a copy with others, and in one that has its own."""
_OUTPUTS = 3


def _everywhere(rig: Rig, scenario: Callable[[], object]) -> None:
    """Run a scenario in every order; on the host there is one."""
    scenario() if rig.on_cpu else rig.check(scenario)


def _busy(rig: Rig) -> None:
    if not rig.on_cpu:
        rig.keep_busy()


@remedy("One of T2 or T3 should say more; else see omni_platforms.outputs.issue.")
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_outputs_survive_the_reuse_of_their_memory(
    rig: Rig, platform: OmniPlatform, size: int
) -> None:
    """Each output arrives whole though its device memory serves again at once."""

    def scenario() -> None:
        with AsyncOutputExecutor(platform) as outputs:
            futures = []
            _busy(rig)
            for number in range(_OUTPUTS):
                image = torch.full((size,), float(number), device=rig.device).mul_(2)
                futures.append(outputs.submit({"image": image, "step": number}))
                del image
                torch.full((size,), 99.0, device=rig.device)
            for number, future in enumerate(futures):
                result = future.result(DEADLINE_SECONDS)
                assert result["step"] == number
                assert result["image"].eq(2.0 * number).all(), "an output has another one's bytes"

    _everywhere(rig, scenario)


@remedy("The snapshot is taken in stream order on the device: see T2.")
def test_a_borrowed_buffer_may_be_overwritten_at_once(rig: Rig, platform: OmniPlatform) -> None:
    """With `borrow=True` the caller overwrites the buffer right after `submit`."""

    def scenario() -> None:
        static = torch.zeros(LARGE, device=rig.device)
        with AsyncOutputExecutor(platform) as outputs:
            futures = []
            for number in range(_OUTPUTS):
                static.fill_(float(number))
                futures.append(outputs.submit(static, borrow=True))
            static.fill_(99.0)
            for number, future in enumerate(futures):
                assert future.result(DEADLINE_SECONDS).eq(float(number)).all()

    _everywhere(rig, scenario)


@remedy("The side stream must wait for the work, and the copy for on_device.")
def test_on_device_runs_before_the_copy(rig: Rig, platform: OmniPlatform) -> None:
    """`on_device` sees the finished output, and the host gets what it returned."""

    def scenario() -> None:
        with AsyncOutputExecutor(platform) as outputs:
            _busy(rig)
            image = torch.full((LARGE,), 0.5, device=rig.device).mul_(2)
            future = outputs.submit(
                image, on_device=lambda value: value.mul(7).to(torch.uint8), on_host=torch.clone
            )
            result = future.result(DEADLINE_SECONDS)
            assert result.dtype is torch.uint8
            assert result.eq(7).all()

    _everywhere(rig, scenario)


@remedy("The executor says why: `AsyncOutputExecutor(...).stats().reason`.")
def test_outputs_are_asynchronous_where_the_platform_can(rig: Rig, platform: OmniPlatform) -> None:
    """With events, side streams and pinned memory declared, no output takes the blocking path."""
    able = platform.capabilities.issuperset(ASYNC)
    with AsyncOutputExecutor(platform) as outputs:
        outputs.submit(torch.ones(LARGE, device=rig.device)).result(DEADLINE_SECONDS)
        stats = outputs.stats()
    assert stats.mode == ("async" if able else "blocking"), stats.reason
    assert stats.pinned is able
    assert stats.blocking_leaves == 0 or not able


@needs(*ASYNC)
@remedy("A primitive of the platform waits for the device: see T2's rows on primitives.")
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_submit_does_not_make_the_host_wait(rig: Rig, platform: OmniPlatform, size: int) -> None:
    """`submit()` returns while the device is busy, so that the next forward can be enqueued."""
    image = torch.ones(size, device=rig.device)
    with AsyncOutputExecutor(platform) as outputs:
        assert not rig.waits(lambda: outputs.submit(image))
        outputs.drain(DEADLINE_SECONDS)


@remedy("The event after the copies must cover them: see T3.")
def test_drain_waits_for_the_device(accelerator: Rig, platform: OmniPlatform) -> None:
    """When `drain()` returns, the device has finished with every output."""
    with AsyncOutputExecutor(platform) as outputs:
        work = accelerator.keep_busy()
        future = outputs.submit(torch.ones(LARGE, device=accelerator.device))
        outputs.drain(DEADLINE_SECONDS)
        assert work.done()
        assert future.done()


def test_a_failing_output_harms_no_other(rig: Rig, platform: OmniPlatform) -> None:
    """What `on_device` raises is that output's error; those around it arrive."""

    def fail(value: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("planted")

    with AsyncOutputExecutor(platform) as outputs:
        image = torch.full((LARGE,), 5.0, device=rig.device)
        futures = [outputs.submit(image, on_device=way) for way in (None, fail, None)]
        with pytest.raises(ArithmeticError, match="planted"):
            futures[1].result(DEADLINE_SECONDS)
        for future in (futures[0], futures[2]):
            assert future.result(DEADLINE_SECONDS).eq(5).all()
