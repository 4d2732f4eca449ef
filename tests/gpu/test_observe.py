"""On a real NVIDIA GPU: times of the device on the host's clock, and ranges in a profile."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.observe.device_clock import DeviceClock
from omni_platforms.observe.ranges import Ranges
from omni_platforms.observe.sink import now
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.selection import current_platform, reset_platform
from tests.observe.listener import Listener, listening

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.version.cuda is None or not torch.cuda.is_available(), reason="gpu: no NVIDIA GPU"
    ),
]

PATIENCE = 60.0


@pytest.fixture(scope="module")
def platform():
    """The platform that this machine selects."""
    reset_platform()
    yield current_platform()
    reset_platform()


def test_the_devices_clock_is_believed_and_placed(platform):
    clock = DeviceClock(platform, platform.device(0))
    assert clock.usable
    for _ in range(20):
        before = now()
        mark = clock.mark(None)
        mark.synchronize()
        at, after = clock.at(mark), now()
        assert before - 1e-3 < at < after + 1e-3


def test_copies_of_large_outputs_have_times_of_the_device(platform):
    heard = Listener()
    large = torch.ones(16 << 20, device=platform.device(0))  # 64 MiB: a millisecond and more
    with listening(heard), AsyncOutputExecutor(platform) as outputs:
        for _ in range(10):
            outputs.submit(large, on_host=lambda value: value).result(PATIENCE)
        outputs.drain(PATIENCE)
    timed = [record for record in heard.ended if record.spans]
    assert len(timed) >= 5  # a mark may be complete only after its output was seen
    for record in timed:
        begin, end = record.spans["copy"]
        assert record.opened - 1e-3 < begin < end < record.closed + 1e-3
        assert 0.5e-3 < end - begin < 0.1


def test_a_capture_is_not_broken_by_an_observer(platform):
    small = torch.ones(100, device=platform.device(0))
    with listening(Listener()), AsyncOutputExecutor(platform) as outputs:
        graph, out = torch.cuda.CUDAGraph(), torch.empty_like(small)
        with outputs.capture_guard(), torch.cuda.graph(graph):
            out.copy_(small + 1)
        graph.replay()
        assert outputs.submit(out, borrow=True).result(PATIENCE).eq(2).all()


def test_ranges_go_through_nvtx_and_are_in_torchs_profile(platform):
    ones = torch.ones(10, device=platform.device(0))
    with (
        listening(Ranges()),
        AsyncOutputExecutor(platform) as outputs,
        torch.profiler.profile() as profile,
    ):
        outputs.submit(ones, on_host=lambda value: value).result(PATIENCE)
    assert "omni.submit" in {event.name for event in profile.events()}
