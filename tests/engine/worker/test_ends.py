"""How workers come up and end: orderly, killed, deaf, without their device or their parent."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from omni_platforms.engine.child import exit_words
from omni_platforms.engine.messages import Execute, Kind
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.process import WorkerProcess, stop_all
from omni_platforms.engine.worker.start import Parts
from omni_platforms.errors import (
    ArenaFullError,
    ChannelClosedError,
    DeviceLostError,
    DrainTimeoutError,
    WorkerStartError,
)
from tests.engine.driver import Driver, driven, process_of

pytestmark = [
    pytest.mark.xdist_group("engine_worker"),
    pytest.mark.usefixtures("nothing_stays_behind"),
]


def gone(process: WorkerProcess) -> None:
    assert not psutil.pid_exists(process.pid)
    process.close()
    process.close()


# Up ---------------------------------------------------------------------------


def test_a_class_that_fails_is_the_starts_error_with_what_it_printed() -> None:
    process = process_of("FailsToStart")
    with pytest.raises(WorkerStartError, match="no weights") as caught:
        process.wait_started(60)
    assert "loading the weights ..." in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    gone(process)


def test_a_worker_that_dies_while_it_starts_is_noticed_at_once() -> None:
    process = process_of()
    os.kill(process.pid, signal.SIGSEGV)
    start = time.monotonic()
    with pytest.raises(WorkerStartError, match="killed by SIGSEGV"):
        process.wait_started(60)
    assert time.monotonic() - start < 5
    gone(process)


def test_a_worker_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_WORKER_START_TIMEOUT", "0.2")
    process = process_of(config="x" * (1 << 20))  # more than it reads before it is up
    with pytest.raises(WorkerStartError, match=r"after 0\.2 s.*OMNI_WORKER_START_TIMEOUT"):
        process.wait_started()
    gone(process)


def test_a_worker_that_nobody_holds_ends() -> None:
    others = set(threading.enumerate())
    process = process_of()
    pid = process.pid
    mine = {thread.name: thread for thread in set(threading.enumerate()) - others}
    if "omni-to-worker 0" in mine:  # it may have ended already
        mine["omni-to-worker 0"].join(20)
    del process
    gc.collect()
    ended, status = os.waitpid(pid, 0)
    assert (ended, os.waitstatus_to_exitcode(status)) == (pid, -signal.SIGKILL)
    mine["omni-printed-worker 0"].join(20)


def test_exits_in_words() -> None:
    assert [exit_words(code) for code in (None, 0, 70, -9, -200)] == [
        "running",
        "exit status 0",
        "exit status 70",
        "killed by SIGKILL",
        "killed by signal 200",
    ]


# Orderly ----------------------------------------------------------------------


def test_a_stop_delivers_what_is_queued_and_the_last_word_is_last(tmp_path: Path) -> None:
    with driven() as worker:
        _a_full_machine_fails_one_output(worker)
        running = worker.send_request(("wait_for", str(tmp_path / "go")))
        names = [worker.send_request(("fill", (i, 10_000))) for i in range(5)]
        worker.process.ask_to_stop(30)
        (tmp_path / "go").touch()
        worker.hear_to_the_end()
        assert worker.output(running) == str(tmp_path / "go")
        outputs = [worker.output(name) for name in names]
        assert [output[0] for output in outputs] == [0, 1, 2, 3, 4]
        assert worker.last_word is not None
        assert worker.last_word.error is None
        assert worker.process.wait_exit(20)
        assert worker.process.state() == "exit status 0"
        worker.process.close()
        outputs[4].add_(1)
        assert outputs[4].eq(5).all(), "results outlive the worker"
        worker.seen.clear()


def _a_full_machine_fails_one_output(worker: Driver) -> None:
    """At once, also where outputs wait for room: no consumer can make the machine larger."""
    held = worker.run(("fill", (1, 9000)))
    worker.call("limit_memory", 1 << 19)
    with pytest.raises(ArenaFullError, match=r"EFBIG.*ulimit -f"):
        worker.run(("fill", (1, 600_000)))
    assert worker.run(("fill", (2, 9000))).eq(2).all()
    worker.call("limit_memory", 0)
    assert worker.run(("fill", (3, 600_000))).eq(3).all()
    assert held.eq(1).all()


def test_a_stop_whose_time_is_over_prints_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """At the exit of a parent with work in flight this would stand on its terminal."""

    class Busy:
        stop_at = time.monotonic()

        def stop(self) -> None:
            pass

        def join(self, timeout: float) -> bool:
            return False

        def close(self, timeout: float) -> None:
            raise DrainTimeoutError("the device still writes")

    busy: Any = Busy()
    with caplog.at_level(logging.INFO):
        Parts(object(), busy, busy, busy, busy, busy, busy, 0).finish()
    assert len(caplog.records) == 2
    assert all(record.levelno < logging.WARNING for record in caplog.records)


# Violent ----------------------------------------------------------------------


def test_a_deaf_worker_and_a_killed_one_in_bounded_time(tmp_path: Path) -> None:
    """One ignores SIGTERM, and the other is dead before: nobody else gets a signal."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with driven("Deaf") as deaf, driven() as killed:
        deaf.send_request(("wait_for", str(tmp_path / "never")))
        _killed_between_compute_done_and_output_ready(killed, tmp_path)
        start = time.monotonic()
        assert stop_all([deaf.process, killed.process], timeout=0.3, grace=0.3) == []
        assert 0.6 <= time.monotonic() - start < 5
        assert deaf.process.state() == "killed by SIGKILL"
        assert stop_all([deaf.process, killed.process], timeout=0.3) == []
        for worker in (deaf, killed):
            worker.process.close()
    assert bystander.poll() is None
    bystander.communicate(b"\n")


def _killed_between_compute_done_and_output_ready(worker: Driver, tmp_path: Path) -> None:
    """What had arrived is delivered, and the end is seen at once although a child lives on."""
    kept = worker.run(("fill", (4, 10_000)))
    child = worker.call("fork_child")
    arrived = worker.send_request(("fill", (5, 10_000)))
    worker.hear(Kind.COMPUTE_DONE, arrived)
    worker.await_nothing_left()
    stuck = worker.send_request(("stick_in_copy", 60.0))
    worker.hear(Kind.COMPUTE_DONE, stuck)
    worker.process.kill()
    start = time.monotonic()
    worker.hear_to_the_end()
    assert time.monotonic() - start < 2
    assert worker.process.state() == "killed by SIGKILL"
    assert worker.output(arrived).eq(5).all()
    assert kept.eq(4).all()
    assert worker.seen == []
    os.kill(child, signal.SIGKILL)
    with pytest.raises(ChannelClosedError):
        worker.process.channel.send(Execute("late", Pickled.of(1)))


def test_a_lost_device_ends_the_worker_with_its_cause(tmp_path: Path) -> None:
    """And an error that only looks like one does not."""
    with driven() as worker:
        with pytest.raises(RuntimeError, match="a kernel of this request only"):
            worker.run(("raise_runtime_error", "a kernel of this request only"))
        assert worker.run(1) == 1
        lost = worker.send_request(("lose_device", "found"))
        worker.send_request("never answered")
        error = worker.hear(Kind.COMPUTE_DONE, lost).error
        assert error is not None
        assert "illegal memory access" in error.text
        worker.hear_to_the_end()
        assert worker.last_word is not None
        assert worker.last_word.error is not None
        cause = worker.last_word.error.restore()
        assert isinstance(cause, DeviceLostError)
        assert "uncorrectable ECC error" in str(cause)
        assert worker.process.wait_exit(20)
        assert worker.process.state() == "exit status 70"
        assert "DeviceLostError" in worker.process.printed_note()


# The parent -------------------------------------------------------------------


def test_workers_die_with_their_parent_whatever_they_do() -> None:
    """One holds the GIL inside C code; of the other the output thread is in a copy, the rest idle.

    A forked child of the parent, with copies of all its descriptors, lives on meanwhile.
    """
    command = [sys.executable, "-m", "tests.engine.worker.parent", "hold_gil", "stick_in_copy"]
    parent = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    assert parent.stderr is not None
    child, *workers = map(int, parent.stdout.readline().split())
    printed = {parent.stderr.readline() for _ in workers}
    assert printed == {"holding the GIL\n", "in the copy\n"}
    try:
        parent.kill()
        parent.wait()
        start = time.monotonic()
        while any(map(_runs, workers)) and time.monotonic() < start + 5:
            time.sleep(0.01)
        assert not any(map(_runs, workers))
        assert _runs(child)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()
        parent.stderr.close()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
