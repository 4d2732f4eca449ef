"""T5: several devices in one process."""

from __future__ import annotations

import torch

from omni_platforms.conformance.marks import devices, needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig, in_thread
from omni_platforms.conformance.suite.test_t4_executor import ASYNC, LARGE, SMALL
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = [tier("T5"), devices(2)]


@needs(Capability.DEVICE_EVENTS, Capability.PINNED_MEMORY)
@remedy("Record on the stream's own device; make the event for that device.")
def test_an_event_orders_a_stream_of_another_device(rig: Rig, platform: OmniPlatform) -> None:
    """A stream of device 1 waits for an event of device 0, and sees what was written there.

    By way of pinned memory: torch orders a copy between two devices by itself.
    """

    def scenario() -> None:
        between = platform.pinned_empty((4096,), torch.float32)
        assert between is not None
        source = torch.zeros(4096, device=rig.on(0))
        rig.keep_busy()
        source.fill_(7)
        between.fill_(9).copy_(source, non_blocking=True)
        event = platform.record_device_event(torch.accelerator.current_stream(0))
        assert event is not None
        side = torch.Stream(device=rig.on(1))
        platform.stream_wait_event(side, event)
        with rig.entered(side):
            copy = between.to(rig.on(1), non_blocking=True)
        side.synchronize()
        rig.finish()
        assert copy.eq(7).all()

    rig.check(scenario)


@needs(Capability.DEVICE_EVENTS)
@remedy("Use the calling thread's current device where no stream is given.")
def test_an_event_without_a_stream_is_on_the_current_device(
    rig: Rig, platform: OmniPlatform
) -> None:
    """`record_device_event()` covers the current device's stream, whichever device that is."""
    platform.set_device(1)
    work = rig.keep_busy(index=1)
    event = platform.record_device_event()
    assert event is not None
    rig.module.synchronize(0)
    assert not event.query()
    work.wait()


@needs(*ASYNC)
@remedy("The executor's thread calls set_device() first: a new thread starts on device 0.")
def test_an_executor_of_another_device(rig: Rig, platform: OmniPlatform) -> None:
    """Outputs of device 1 arrive while device 0 is current, which it stays."""

    def scenario() -> None:
        with AsyncOutputExecutor(platform, 1) as outputs:
            rig.keep_busy(index=1)
            sizes = (SMALL, LARGE)
            futures = [
                outputs.submit(torch.full((size,), 3.0, device=rig.on(1)).mul_(2)) for size in sizes
            ]
            for future in futures:
                assert future.result(DEADLINE_SECONDS).eq(6).all()
        assert torch.accelerator.current_device_index() == 0

    rig.check(scenario)


@needs(Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS)
@remedy("Synchronize the device that is given, not the current one.")
def test_synchronize_leaves_the_other_device_alone(rig: Rig, platform: OmniPlatform) -> None:
    """`synchronize(1)` does not wait for device 0."""
    rig.keep_busy(index=1).wait()
    work = rig.keep_busy(index=0)
    in_thread(lambda: platform.synchronize(rig.on(1)))
    assert not work.done()
