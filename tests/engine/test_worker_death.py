"""SIGKILL of a real worker at any stage: what had arrived is delivered, the rest fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from omni_platforms import (
    ExecutorClosedError,
    WorkerDiedError,
)
from omni_platforms.engine.interface import Executor
from tests.engine.backends import backends, executor_on
from tests.engine.fakes import PATIENCE, until
from tests.engine.test_executor import MB, ROOM

OneWorker = Callable[..., AbstractContextManager[tuple[Executor, int]]]


@pytest.fixture(params=backends("engine_death"))
def one_worker(request: pytest.FixtureRequest) -> OneWorker:
    if request.param == "process":  # Ray has threads and descriptors of its own
        request.getfixturevalue("nothing_stays_behind")

    @contextmanager
    def made(**options: Any) -> Iterator[tuple[Executor, int]]:
        name, room = "tests.engine.workers:Worker", {**ROOM, **options}
        with executor_on(request, request.param, name, 1, "cpu", **room) as executor:
            yield executor, executor._engine.crew.workers[0].pid

    return made


def kill_and_check(executor: Executor, pid: int, pending: list[Any]) -> None:
    """Kill the worker: in two seconds everything that pends has failed by name."""
    causes: list[BaseException] = []
    executor.on_failure(causes.append)
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    for future in pending:
        with pytest.raises(WorkerDiedError, match="killed by SIGKILL"):
            future.result(PATIENCE)
    until(lambda: causes)
    assert time.monotonic() - started < 2
    assert executor.check_health() is False
    assert causes == [executor.failure]
    with pytest.raises(ExecutorClosedError, match="SIGKILL"):
        executor.submit("next")


def test_killed_while_idle_with_an_output_that_nobody_has_taken(one_worker: OneWorker) -> None:
    with one_worker(arena_cap=160 * MB) as (executor, pid):
        tensor = _large_output_without_a_second_copy(executor, 128 * MB)
        done = executor.execute_model(("fill", (2, 9000)))
        until(lambda: "here" in str(executor.describe_pending_state()))
        kill_and_check(executor, pid, [])
        assert executor.wait_output_ready(done.async_output_id).result()[0] == 2
        assert tensor.eq(1).all(), "results outlive the worker"


def _large_output_without_a_second_copy(executor: Executor, nbytes: int) -> Any:
    """Take an output: this process's peak memory grows by its bytes, and at most 64 MB more."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _memory("VmRSS")
    done = executor.execute_model(("fill", (1, nbytes // 4)))
    tensor = executor.wait_output_ready(done.async_output_id).result(PATIENCE)
    assert float(tensor.sum()) == nbytes // 4
    assert nbytes <= _memory("VmHWM") - before <= nbytes + 64 * MB
    return tensor


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


def test_killed_in_a_forward(one_worker: OneWorker, tmp_path: Path) -> None:
    with one_worker() as (executor, pid):
        futures = [executor.submit(("wait_for", str(tmp_path / "never"))) for _ in range(4)]
        waits = [executor.wait_output_ready(future.async_output_id) for future in futures]
        call = executor._ask.call("facts")[1]
        drop = executor._ask.drop(futures[0].async_output_id)
        kill_and_check(executor, pid, [*futures[1:], *waits[1:], call, drop])


def test_killed_between_compute_done_and_output_ready(one_worker: OneWorker) -> None:
    with one_worker(arena_cap=MB) as (executor, pid):
        first = executor.execute_model(("fill", (1, MB // 8)))
        second = executor.execute_model(("fill", (2, MB // 4 - 16)))  # waits for room
        waiting = executor.wait_output_ready(second.async_output_id)
        until(lambda: "'room'" in str(executor.describe_pending_state(PATIENCE)))
        kill_and_check(executor, pid, [waiting])
        assert executor.wait_output_ready(first.async_output_id).result()[0] == 1


def test_killed_while_it_writes_with_its_lock_held(one_worker: OneWorker) -> None:
    """The pump is held up, so that the worker is in the middle of a message that it locks for."""
    release = threading.Event()
    with one_worker() as (executor, pid):
        blocking = executor.submit("first")
        blocking.add_done_callback(lambda _: release.wait(PATIENCE))
        big = executor.submit(b"x" * (8 * MB))
        waiting = executor.wait_output_ready(big.async_output_id)
        until(lambda: _is_blocked_in_a_write(pid))
        threading.Timer(0.2, release.set).start()
        kill_and_check(executor, pid, [waiting])


def _is_blocked_in_a_write(pid: int) -> bool:
    """Whether a thread of the worker is inside `sendmsg`, by the number of its system call."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        call = (task / "syscall").read_text().split()[0]
        if call == {"x86_64": "46", "aarch64": "211"}[os.uname().machine]:
            return True
    return False
