"""On a real NVIDIA GPU: selection, and outputs under reuse of their memory."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from omni_platforms.errors import CaptureError
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


def test_small_outputs_that_share_a_copy_survive_reuse(platform):
    with AsyncOutputExecutor(platform) as outputs:
        futures = []
        for i in range(500):  # nobody asks, so most of them wait for company
            futures.append(outputs.submit({"ids": torch.full((256,), i, device="cuda")}))
            torch.full((256,), -1, device="cuda")
        for i, future in enumerate(futures):
            assert future.result(60)["ids"].eq(i).all()
        assert outputs.stats().resolved == 500


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_small_outputs_survive_whenever_they_are_asked_for(platform, lag):
    side = platform.create_side_stream()
    with AsyncOutputExecutor(platform) as outputs:
        futures = []
        for i in range(300):
            if i % 7:
                futures.append(outputs.submit(torch.full((256,), i, device="cuda") + 0))
            else:
                with platform.stream_context(side):
                    futures.append(outputs.submit(torch.full((256,), i, device="cuda") + 0))
            if i >= lag:
                assert futures[i - lag].result().eq(i - lag).all()


def test_a_capture_is_refused_or_guarded(platform):
    static = torch.zeros(256, device="cuda")
    with AsyncOutputExecutor(platform) as outputs:
        outputs.submit(static, borrow=True).result(60)
        stop = threading.Event()

        def submit_all_the_time() -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    outputs.submit(torch.ones(1 << 18, device="cuda")).result(60)

        graph = torch.cuda.CUDAGraph()
        other = threading.Thread(target=submit_all_the_time)
        allocate = torch.ones(1 << 18, device="cuda")  # the capture itself allocates nothing new
        other.start()
        try:
            with outputs.capture_guard(), torch.cuda.graph(graph):
                static.add_(allocate[:256])
        finally:
            stop.set()
            other.join()
        with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(CaptureError):
            outputs.submit(static)
        for i in range(1, 20):
            graph.replay()
            futures = [outputs.submit(static, borrow=True)]
            static.fill_(float(i))
        assert futures[0].result(60).eq(19.0).all()


def test_the_interpreter_may_exit_with_work_in_flight():
    script = """
import torch
from omni_platforms import current_platform
from omni_platforms.outputs import AsyncOutputExecutor
outputs = AsyncOutputExecutor(current_platform())
torch.cuda._sleep(int(1e9))
future = outputs.submit(torch.ones(1 << 22, device="cuda"))
future.add_done_callback(lambda f: print("arrived", int(f.result().sum()), flush=True))
small = [outputs.submit(torch.ones(4, device="cuda")) for _ in range(100)]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["arrived", str(1 << 22)]
    assert "Error" not in done.stderr
