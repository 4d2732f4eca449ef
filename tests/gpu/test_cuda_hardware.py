"""On a real NVIDIA GPU: selection, and outputs under reuse of their memory."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.selection import current_platform, reset_platform
from tests.outputs.test_nest import DTYPES, LAYOUTS, bits, make_tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.version.cuda is None or not torch.cuda.is_available(), reason="gpu: no NVIDIA GPU"
    ),
]


@pytest.fixture(scope="module")
def platform():
    """The platform that this machine selects."""
    reset_platform()
    yield current_platform()
    reset_platform()


def test_the_machine_selects_cuda(platform):
    assert platform.is_cuda()


@pytest.mark.parametrize("size", [256, 1 << 20])
def test_500_outputs_survive_the_immediate_reuse_of_their_memory(platform, size):
    with AsyncOutputExecutor(platform) as outputs:
        futures = []
        for i in range(500):
            image = torch.full((size,), float(i), device="cuda")
            futures.append(outputs.submit(image))
            del image
            torch.full((size,), -1.0, device="cuda")
            if len(futures) > 8:
                want = i - 8
                assert futures.pop(0).result(60).eq(want).all()
        assert outputs.stats().mode == "async"


def test_borrowed_buffers_may_be_overwritten_at_once(platform):
    static = torch.zeros(1 << 20, device="cuda")
    with AsyncOutputExecutor(platform) as outputs:
        futures = []
        for i in range(50):
            static.fill_(i)
            futures.append(outputs.submit(static, borrow=True))
        assert all(future.result(60).eq(i).all() for i, future in enumerate(futures))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_layout_survives(platform, layout):
    with AsyncOutputExecutor(platform) as outputs:
        for dtype in DTYPES:
            want = bits(make_tensor(dtype, layout, 3))
            future = outputs.submit(make_tensor(dtype, layout, 3, "cuda"))
            assert bits(future.result(60)) == want, dtype


def test_existing_memory_is_registered_and_given_back(platform):
    memory = bytearray(1 << 20)
    with platform.register_host_memory(memory) as registered:
        assert registered.tensor.is_pinned()
        registered.tensor.copy_(torch.full((1 << 20,), 7, dtype=torch.uint8, device="cuda"))
    assert set(memory) == {7}
    assert registered.closed


def test_a_thread_that_waits_does_not_keep_a_core_busy(platform):
    import time

    torch.cuda._sleep(int(5e8))
    event = platform.record_device_event()
    cpu, wall = time.thread_time(), time.perf_counter()
    assert platform.synchronize_event(event)
    share = (time.thread_time() - cpu) / (time.perf_counter() - wall)
    assert share < 0.1
