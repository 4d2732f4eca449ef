"""The executor's promises that need no device: order, errors, bounds, drain, close, fork, exit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
import traceback
import weakref

import pytest
import torch

from omni_platforms.errors import (
    CaptureError,
    DrainTimeoutError,
    ExecutorClosedError,
    ExecutorForkedError,
    ExecutorFullError,
    OutputTimeoutError,
)
from omni_platforms.outputs import AsyncOutputExecutor, Phase
from omni_platforms.platform.cpu import CpuPlatform


def blocked(outputs: AsyncOutputExecutor, release: threading.Event):
    """Submit an output whose on_host waits for `release`; return once it is running."""
    running = threading.Event()

    def hold(value):
        running.set()
        assert release.wait(30)
        return value

    future = outputs.submit(torch.ones(2), on_host=hold)
    assert running.wait(30)
    return future


def test_results_arrive_in_order_of_submission(cpu_outputs):
    seen = []
    futures = [cpu_outputs.submit(i, on_host=(seen.append if i % 3 else None)) for i in range(30)]
    cpu_outputs.drain()
    assert seen == [i for i in range(30) if i % 3]
    moments = [future.timeline.resolved for future in futures]
    assert moments == sorted(moments)


def test_on_host_runs_on_the_named_background_thread(cpu_outputs):
    name = cpu_outputs.submit(1, on_host=lambda _: threading.current_thread().name).result(10)
    assert name == "omni-outputs-cpu"


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("on_host", ValueError),
        ("on_host", SystemExit),
        ("on_host", KeyboardInterrupt),
        ("on_host", MemoryError),
        ("on_device", ValueError),
        ("on_device", MemoryError),
    ],
)
def test_an_error_fails_one_output_with_its_own_traceback(cpu_outputs, stage, kind):
    def culprit(value):
        raise kind("mine")

    bad = cpu_outputs.submit(torch.ones(1), **{stage: culprit})
    good = cpu_outputs.submit(torch.ones(1), on_host=lambda value: value.item())
    assert good.result(10) == 1.0
    error = bad.exception(10)
    assert type(error) is kind
    assert "culprit" in "".join(traceback.format_tb(error.__traceback__))


def test_await_and_cancelled_waits(cpu_outputs):
    release = threading.Event()

    async def run():
        first = blocked(cpu_outputs, release)
        second = cpu_outputs.submit(torch.ones(1), on_host=lambda value: value.item())
        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await asyncio.wait_for(second, 0.01)
        release.set()
        await first
        return second

    second = asyncio.run(run())
    cpu_outputs.drain()
    assert second.cancelled()
    assert cpu_outputs.submit(3, on_host=lambda value: value).result(10) == 3
    assert cpu_outputs.stats().cancelled == 1


def test_cancelling_while_others_settle_never_stops_the_thread(cpu_outputs):
    for _ in range(300):
        future = cpu_outputs.submit(1, on_host=lambda value: value)
        future.cancel()
    assert cpu_outputs.submit(2, on_host=lambda value: value).result(10) == 2
    stats = cpu_outputs.stats()
    assert stats.resolved + stats.cancelled == 301


def test_a_timeout_says_what_the_output_waits_for(cpu_outputs):
    release = threading.Event()
    blocked(cpu_outputs, release)
    later = cpu_outputs.submit(torch.ones(1), on_host=lambda value: value.item())
    with pytest.raises(OutputTimeoutError, match=r"output 1: queue.*output 0: pack.*on_host"):
        later.result(0.01)
    assert isinstance(OutputTimeoutError(""), concurrent.futures.TimeoutError)
    release.set()
    assert later.result(10) == 1.0


def test_an_error_of_the_output_that_is_a_timeout_is_not_ours(cpu_outputs):
    def slow(value):
        raise TimeoutError("theirs")

    with pytest.raises(TimeoutError, match="theirs") as caught:
        cpu_outputs.submit(1, on_host=slow).result(10)
    assert not isinstance(caught.value, OutputTimeoutError)


def test_describe_pending_names_phases_and_bytes(cpu_outputs):
    release = threading.Event()
    first = blocked(cpu_outputs, release)
    cpu_outputs.submit(torch.ones(5), on_host=lambda value: value)
    described = cpu_outputs.describe_pending()
    assert [(item.phase, item.nbytes) for item in described] == [(Phase.PACK, 8), (Phase.QUEUE, 20)]
    release.set()
    first.result(10)
    cpu_outputs.drain()
    assert cpu_outputs.describe_pending() == []


def test_a_full_executor_raises():
    release = threading.Event()
    with AsyncOutputExecutor(CpuPlatform(), max_pending=2, when_full="raise") as outputs:
        blocked(outputs, release)
        outputs.submit(1, on_host=lambda value: value)
        with pytest.raises(ExecutorFullError, match="max_pending=2"):
            outputs.submit(2)
        release.set()
        outputs.drain()
        assert outputs.submit(3).result() == 3


def test_a_full_executor_degrades():
    release = threading.Event()
    with AsyncOutputExecutor(CpuPlatform(), max_pending=1, when_full="degrade") as outputs:
        blocked(outputs, release)
        extra = outputs.submit(torch.ones(1))
        assert outputs.stats().degraded == 1
        release.set()
        assert extra.result(10).tolist() == [1.0]
    assert outputs.stats().pending == outputs.stats().pending_bytes == 0


def test_a_full_executor_blocks_until_there_is_room():
    release, entered = threading.Event(), threading.Event()
    with AsyncOutputExecutor(CpuPlatform(), max_pending_bytes=8) as outputs:
        first = blocked(outputs, release)

        def late():
            entered.set()
            return outputs.submit(torch.full((2,), 5.0)).result(10)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(late)
            assert entered.wait(10)
            assert outputs.stats().pending == 1
            release.set()
            assert waiting.result(10).tolist() == [5.0, 5.0]
        assert first.result(10).tolist() == [1.0, 1.0]
        assert outputs.stats().peak_pending_bytes == 8


def test_an_output_larger_than_the_limit_is_let_in_alone():
    with AsyncOutputExecutor(CpuPlatform(), max_pending_bytes=4) as outputs:
        assert outputs.submit(torch.ones(100)).result(10).sum() == 100


def test_a_submit_that_waits_for_room_ends_with_the_executor():
    release = threading.Event()
    outputs = AsyncOutputExecutor(CpuPlatform(), max_pending=1)
    blocked(outputs, release)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(outputs.submit, 1)
        closing = pool.submit(outputs.close, 0.05)
        closing.result(10)
        with pytest.raises(ExecutorClosedError):
            waiting.result(10)
        release.set()


def test_drain_that_times_out_releases_nothing():
    released = []

    class Platform(CpuPlatform):
        def empty_cache(self):
            released.append(1)

    release = threading.Event()
    with AsyncOutputExecutor(Platform()) as outputs:
        blocked(outputs, release)
        with pytest.raises(DrainTimeoutError, match="must not be released"):
            outputs.release_memory(timeout=0.02)
        assert released == []
        release.set()
        outputs.release_memory()
        assert released == [1]


def test_drain_and_submit_from_inside_on_host_do_not_deadlock():
    with AsyncOutputExecutor(CpuPlatform(), max_pending=1) as outputs:

        def inside(value):
            outputs.drain(5)
            return outputs.submit(torch.ones(1))

        inner = outputs.submit(1, on_host=inside).result(10)
        assert inner.result(10).tolist() == [1.0]


def test_close_delivers_what_is_queued_and_refuses_more():
    outputs = AsyncOutputExecutor(CpuPlatform())
    futures = [outputs.submit(i, on_host=lambda value: value * 2) for i in range(50)]
    outputs.close()
    assert [future.result(0) for future in futures] == [2 * i for i in range(50)]
    with pytest.raises(ExecutorClosedError, match="closed"):
        outputs.submit(1)
    outputs.close()


def test_close_fails_what_does_not_end_in_time():
    release = threading.Event()
    outputs = AsyncOutputExecutor(CpuPlatform())
    stuck = blocked(outputs, release)
    behind = outputs.submit(1, on_host=lambda value: value)
    outputs.close(timeout=0.05)
    for future in (stuck, behind):
        with pytest.raises(ExecutorClosedError, match="closed before"):
            future.result(0)
    release.set()


def test_a_fault_of_the_thread_itself_reaches_every_caller():
    class Lost(CpuPlatform):
        def set_device(self, device):
            raise RuntimeError("device lost")

    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        outputs = AsyncOutputExecutor(Lost())
        future = outputs.submit(1, on_host=lambda value: value)
        error = future.exception(10)
        assert isinstance(error, ExecutorClosedError)
        assert str(error.__cause__) == "device lost"
        with pytest.raises(ExecutorClosedError) as caught:
            outputs.submit(2)
        assert str(caught.value.__cause__) == "device lost"
    finally:
        threading.excepthook = hook


def test_capture_guard_holds_other_threads_and_refuses_its_own(cpu_outputs):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with cpu_outputs.capture_guard():
            waiting = pool.submit(cpu_outputs.submit, 7)
            with pytest.raises(CaptureError, match="capture_guard"):
                cpu_outputs.submit(8)
            assert not waiting.done()
        assert waiting.result(10).result(10) == 7
    assert cpu_outputs.stats().pending == 0, "the refused output must not stay counted"
    assert cpu_outputs.submit(9).result(10) == 9
    cpu_outputs.drain()


def test_many_threads_submit_to_several_executors_at_once():
    with AsyncOutputExecutor(CpuPlatform()) as one, AsyncOutputExecutor(CpuPlatform()) as two:

        def work(start):
            futures = [
                (i, (one, two)[i % 2].submit(torch.full((3,), float(i)), on_host=torch.sum))
                for i in range(start, start + 50)
            ]
            return all(future.result(20) == 3.0 * i for i, future in futures)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(0, 400, 50)))


def test_an_idle_thread_keeps_nothing_alive(cpu_outputs):
    class Payload:
        pass

    payload = Payload()
    alive = weakref.ref(payload)
    cpu_outputs.submit({"meta": payload}, on_host=lambda value: 1).result(10)
    cpu_outputs.drain()
    del payload
    assert alive() is None


def test_dropping_the_executor_ends_its_thread():
    outputs = AsyncOutputExecutor(CpuPlatform())
    thread = outputs.submit(1, on_host=lambda _: threading.current_thread()).result(10)
    del outputs
    thread.join(10)
    assert not thread.is_alive()


def test_an_idle_executor_uses_no_processor_time(cpu_outputs):
    outputs = cpu_outputs
    outputs.submit(1, on_host=lambda value: value).result(10)
    before = outputs.stats().wakeups
    threading.Event().wait(0.2)
    assert outputs.stats().wakeups == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused_and_the_parent_unharmed():
    code = """
import os, torch
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.errors import ExecutorForkedError
from omni_platforms.platform.cpu import CpuPlatform
outputs = AsyncOutputExecutor(CpuPlatform())
outputs.submit(1, on_host=lambda value: value).result(10)
pid = os.fork()
if pid == 0:
    try:
        outputs.submit(2)
    except ExecutorForkedError:
        outputs.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(outputs.submit(3, on_host=lambda value: value).result(10))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "3", done.stderr
    assert ExecutorForkedError.__doc__


def test_interpreter_exit_delivers_what_is_in_flight():
    code = """
import time, torch
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform
outputs = AsyncOutputExecutor(CpuPlatform())
for i in range(3):
    outputs.submit(i, on_host=lambda value: (time.sleep(0.05), print(value, flush=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.returncode, done.stderr) == (["0", "1", "2"], 0, "")


@pytest.mark.parametrize(
    "bad",
    [{"max_pending": 0}, {"max_pending_bytes": -1}, {"when_full": "maybe"}, {"device": "cuda:0"}],
)
def test_bad_options_are_refused(bad):
    with pytest.raises(ValueError, match=r"must be|not a device"):
        AsyncOutputExecutor(CpuPlatform(), **bad)


def test_a_degraded_result_made_in_inference_mode_can_be_written():
    release = threading.Event()
    with AsyncOutputExecutor(CpuPlatform(), max_pending=1, when_full="degrade") as outputs:
        blocked(outputs, release)
        with torch.inference_mode():
            future = outputs.submit(torch.ones(2) * 3)
        release.set()
        assert future.result(10).add_(1).tolist() == [4.0, 4.0]
