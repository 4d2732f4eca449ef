"""T5: collectives, and the events that cover them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from omni_platforms.conformance.marks import devices, needs, remedy, tier
from omni_platforms.conformance.ranks import run_ranks
from omni_platforms.conformance.rig import Rig
from omni_platforms.conformance.subject import Subject
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = tier("T5")


@pytest.fixture(scope="module")
def group(_session_rig: Rig) -> Iterator[None]:
    """A group of this process alone, with the platform's backend."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(_session_rig.collectives, store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _gather(rig: Rig) -> tuple[torch.Tensor, dist.Work]:
    """Start to gather a tensor of sevens into one of zeros, as a group of one does."""
    source = torch.zeros(4096, device=rig.device)
    target = torch.zeros(4096, device=rig.device)
    if not rig.on_cpu:
        rig.keep_busy()
    source.fill_(7)
    work = dist.all_gather_into_tensor(target, source, async_op=True)
    assert work is not None
    return target, work


@remedy("`dist_backend` names the backend that torch.distributed has for tensors of this device.")
def test_the_backend_gathers_tensors_of_the_device(
    rig: Rig, platform: OmniPlatform, group: None
) -> None:
    """`dist_backend` is a backend of `torch.distributed` for this device's tensors."""
    target, work = _gather(rig)
    work.wait()
    rig.finish()
    assert target.to("cpu").eq(7).all()


@needs(Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS)
@remedy("The collective writes from a stream of its own that wait() does not order: "
        "make the host wait for the device in record_device_event().")  # fmt: skip
def test_an_event_covers_a_collective_that_was_waited_for(
    rig: Rig, platform: OmniPlatform, group: None
) -> None:
    """After `Work.wait()`, an event covers what the collective writes, on any stream."""

    def scenario() -> None:
        target, work = _gather(rig)
        work.wait()
        event = platform.record_device_event()
        assert event is not None
        side = torch.Stream(device=rig.device)
        platform.stream_wait_event(side, event)
        with rig.entered(side):
            copy = target.clone()
        side.synchronize()
        assert copy.eq(7).all(), "the event does not cover the collective"

    rig.check(scenario)


@devices(2)
@remedy("The ranks' errors are in the detail of this row.")
def test_two_ranks_on_two_devices_reduce_and_gather(subject: Subject) -> None:
    """Two processes, each on a device of its own, reduce and gather through `dist_backend`."""
    found = run_ranks(subject.name, 2)
    assert [each["device"] for each in found] == [0, 1]
    assert all(each["sum"] == [3.0] * 4 for each in found)
    assert all(each["gathered"] == [1.0] * 4 + [2.0] * 4 for each in found)
