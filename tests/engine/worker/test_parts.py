"""The parts of a worker inside this process: without a process, on the CPU."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omni_platforms.engine.channel import Channel, pair
from omni_platforms.engine.messages import Kind, Setup, Started, Stop
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.worker import numa
from omni_platforms.engine.worker.device_loss import lost_device
from omni_platforms.engine.worker.forgetting import forget
from omni_platforms.engine.worker.start import _assemble, cap_of, device_of
from omni_platforms.engine.worker.work import Phase, WorkTable
from omni_platforms.engine.worker.worker_class import load_class, make_worker
from omni_platforms.errors import (
    ArenaFullError,
    DeviceLostError,
    UnknownMethodError,
    WorkerStartError,
    WorkerStoppedError,
)
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, ArenaView
from tests.engine.driver import Driver
from tests.engine.workers import SingleWorker, Worker

CPU = torch.device("cpu")
MB = 1 << 20


@contextmanager
def inside(worker: Any, **options: Any) -> Iterator[Driver]:
    """Run a worker's loop on a thread, and talk to it over a channel."""
    setup = Setup("tests", Pickled.of(None), **options)
    (ours, theirs), (here, there) = pair(), socket.socketpair()
    with Arena(CpuPlatform(), cap=4 * MB, segment_bytes=MB) as arena, here, there:
        arena.connect(there)
        view = ArenaView.connect(here)
        parts = _assemble(setup, Channel(theirs), worker, arena)
        parts.inbox.start()
        loop = threading.Thread(target=parts.loop.run)
        loop.start()
        process: Any = SimpleNamespace(channel=Channel(ours), view=view)
        try:
            yield Driver(process, Started())
        finally:
            process.channel.send(Stop(10.0))
            loop.join(20)
            parts.outputs.stop()
            assert parts.outputs.join(20)
            process.channel.close()
            view.close()
            for thread in [t for t in threading.enumerate() if t.name == "omni-reader"]:
                thread.join(20)
            os.close(parts.room._waking)
            os.close(parts.room._wake)


def single() -> SingleWorker:
    return SingleWorker(0, CPU, None, world_size=2)


def test_a_worker_without_batches_runs_them_one_by_one() -> None:
    with inside(single()) as worker:
        batch = worker.send_batch({"a": "x", "b": "bad", "c": "z"})
        assert worker.hear(Kind.COMPUTE_DONE, batch).error is None
        assert worker.output(f"{batch}/a") == {"request": "x", "world_size": 2}
        with pytest.raises(ValueError, match="this member only"):
            worker.output(f"{batch}/b")
        assert worker.output(f"{batch}/c")["request"] == "z"


def test_a_worker_without_steps_says_so() -> None:
    with inside(single()) as worker:
        with pytest.raises(UnknownMethodError, match="execute_stepwise"):
            worker.run("x", stepwise=True)
        assert worker.run("x")["request"] == "x"


def test_a_full_arena_may_fail_the_output_at_once() -> None:
    with inside(Worker(0, CPU, None), block_when_full=False) as worker:
        held = [worker.run(("fill", (i, 350_000))) for i in range(2)]
        with pytest.raises(ArenaFullError, match="Let go of results"):
            worker.run(("fill", (3, 350_000)))
        held.pop()
        assert worker.run(("fill", (4, 350_000))).eq(4).all()


def test_the_wait_for_room_has_an_end() -> None:
    with inside(Worker(0, CPU, None), room_timeout=0.1) as worker:
        held = [worker.run(("fill", (i, 350_000))) for i in range(2)]
        with pytest.raises(ArenaFullError, match=r"no room for an output within 0\.1 s"):
            worker.run(("fill", (3, 350_000)))
        assert held[1].eq(1).all()


def test_a_stop_that_is_over_fails_what_was_not_begun(tmp_path: Path) -> None:
    with inside(Worker(0, CPU, None)) as worker:
        running = worker.send_request(("wait_for", str(tmp_path / "go")))
        worker.await_phase(running, "compute")
        queued = worker.send_request("never begun")
        worker.process.channel.send(Stop(0.0))
        worker.call("omni.describe")  # the reader has seen it, and the time is over
        (tmp_path / "go").touch()
        assert worker.hear(Kind.COMPUTE_DONE, running).error is None
        assert worker.output(running) == str(tmp_path / "go")
        error = worker.hear(Kind.COMPUTE_DONE, queued).error
        assert error is not None
        assert isinstance(error.restore(), WorkerStoppedError)


def test_a_rank_that_delivers_nothing_keeps_nothing() -> None:
    made = Worker(0, CPU, None)
    with inside(made, delivers=False) as worker:
        name = worker.send_request(("fill", (1, 9000)))
        assert worker.hear(Kind.COMPUTE_DONE, name).error is None
        batch = worker.send_batch({"a": 1})
        assert worker.hear(Kind.COMPUTE_DONE, batch).members == (f"{batch}/a",)
        worker.await_nothing_left()
        assert worker.seen == []
        assert made.alive() == 0


# The table --------------------------------------------------------------------

WAY = (Phase.COMPUTE, Phase.ROOM, Phase.GATE, Phase.COPY, Phase.SEND)


def told(table: WorkTable, drop_at: int, twice: bool = False) -> list[str]:
    """Take one output along its way, drop it before step `drop_at`; return what is sent."""
    sent: list[str] = []
    table.add("r")
    wanted = True
    for at, phase in enumerate((*WAY, None)):
        for _ in range(1 + twice if at == drop_at else 0):
            if table.drop("r"):
                sent.append("DROPPED")
        if phase is None or not (wanted := wanted and table.enter("r", phase)):
            break
        if phase is Phase.SEND:
            sent.append("OUTPUT_READY")
    if table.finish("r"):
        sent.append("DROPPED")
    if drop_at > len(WAY) and table.drop("r"):
        sent.append("DROPPED")
    assert table.describe() == []
    return sent


@pytest.mark.parametrize("drop_at", range(len(WAY) + 2))
def test_a_drop_is_acknowledged_once_and_last_whenever_it_comes(drop_at: int) -> None:
    sent = told(WorkTable(), drop_at)
    assert sent.count("DROPPED") == 1
    assert sent[-1] == "DROPPED"
    assert ("OUTPUT_READY" in sent) == (drop_at >= len(WAY))


def test_planted_a_table_that_forgets_the_drop_never_acknowledges_it() -> None:
    class Forgetful(WorkTable):
        def finish(self, name: str) -> bool:
            super().finish(name)
            return False

    answers = [told(Forgetful(), at).count("DROPPED") for at in range(len(WAY) + 2)]
    assert answers == [1, 0, 0, 0, 0, 0, 1]


def test_previews_end_with_their_request() -> None:
    table = WorkTable()
    table.add("r", previews=1)
    assert [table.take_preview("r") for _ in range(2)] == [True, False]
    table.give_preview("r")
    table.enter("r", Phase.COMPUTE)
    table.drop("r")
    assert not table.take_preview("r")
    table.finish("r")
    table.give_preview("r")
    assert table.describe() == []


# The device -------------------------------------------------------------------


class Failing(CpuPlatform):
    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    def synchronize(self, device: Any = None) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise RuntimeError("it fails")


@pytest.mark.parametrize(
    ("error", "failures", "lost", "asked"),
    [
        (RuntimeError("any error of torch"), 0, False, 1),
        (RuntimeError("the first wait reports it once more"), 1, False, 2),
        (RuntimeError("and then it fails again"), 2, True, 2),
        (ValueError("of the host alone"), 2, False, 0),
        (ArenaFullError("ours"), 2, False, 0),
        (DeviceLostError("the worker says it"), 0, True, 0),
    ],
)
def test_a_device_is_lost_when_it_fails_twice(
    error: Exception, failures: int, lost: bool, asked: int
) -> None:
    platform = Failing(failures)
    assert (lost_device(error, platform, CPU) is not None) == lost
    assert platform.asked == asked


def test_forgetting_an_exception_ends_its_cycles() -> None:
    def fail() -> None:
        kept = ValueError("kept")
        kept.__context__ = KeyError("a circle")
        kept.__context__.__context__ = kept
        raise kept

    with pytest.raises(ValueError, match="kept") as caught:
        fail()
    error = caught.value
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    frame = error.__traceback__.tb_next.tb_frame
    assert "kept" in frame.f_locals
    forget(error)
    assert "kept" not in frame.f_locals


class TwoDevices(CpuPlatform):
    device_type = "two"
    device_control_env_var = "TWO_VISIBLE_DEVICES"

    def device_count(self) -> int:
        return 2

    def device(self, index: int = 0) -> torch.device:
        return torch.device("meta", index)


def test_a_device_that_is_not_there_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup("tests", Pickled.of(None), rank=3, world_size=4, device_index=3)
    assert device_of(setup, CpuPlatform()) == CPU
    assert device_of(replace(setup, device_index=1), TwoDevices()).index == 1
    monkeypatch.setenv("TWO_VISIBLE_DEVICES", "4,5")
    with pytest.raises(WorkerStartError, match=r"device 3.*sees 2.*TWO_VISIBLE_DEVICES=4,5"):
        device_of(setup, TwoDevices())


def test_workers_divide_the_default_cap() -> None:
    setup = Setup("tests", Pickled.of(None))
    assert cap_of(setup) is None, "the arena's own default"
    assert cap_of(replace(setup, arena_cap=5, arena_shares=4)) == 5
    caps = [cap_of(replace(setup, arena_shares=count)) or 0 for count in (2, 8)]
    assert 3 < caps[0] / caps[1] < 5


# The class, and the processors ------------------------------------------------


def test_a_worker_class_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_worker_of_a_test.py"
    file.write_text("class Mine:\n    def execute_model(self, request): ...\n")
    assert load_class(f"{file}:Mine").__module__ == "my_worker_of_a_test"
    with pytest.raises(WorkerStartError, match=r"no class 'Yours'; it has Mine"):
        load_class(f"{file}:Yours")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("just_a_module", "does not name a worker class"),
        ("tests.engine.workers:Missing", "has no class 'Missing'; it has .*SingleWorker"),
        ("no/such/file.py:Worker", "there is no file"),
        ("tests.engine.workers:MB", "has no class"),
        ("collections:Counter", r"has no method execute_model\(request\)"),
    ],
)
def test_a_name_that_is_no_worker_class_is_a_typed_error(name: str, message: str) -> None:
    with pytest.raises(WorkerStartError, match=message):
        make_worker(Setup(name, Pickled.of(None)), CPU)


def test_a_thread_goes_to_its_devices_node_and_others_stay() -> None:
    assert numa.parse_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert numa.parse_list("\n") == set()
    before = os.sched_getaffinity(0)
    found: list[Any] = []

    def work() -> None:
        found.extend([numa.run_near(None), numa.run_near(4000), numa.run_near(0)])
        found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[:2] == [False, False]
    if found[2]:
        assert found[3] == numa.processors_of(0) & before
    assert os.sched_getaffinity(0) == before
