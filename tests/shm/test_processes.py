"""Worker and consumer as processes of their own: descriptors, leases, and violent ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import torch

from omni_platforms.errors import ArenaClosedError
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, ArenaStats, ArenaView
from omni_platforms.shm import lease as lease_module
from tests.outputs.test_nest import same
from tests.shm import worker_process

SPAWN = multiprocessing.get_context("spawn")
MB = 1 << 20


@pytest.fixture(scope="package", autouse=True)
def _resource_tracker() -> None:
    """Start the one helper that multiprocessing keeps, before descriptors are counted."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()


class Worker:
    """A worker process, and the parent's view of its arena."""

    def __init__(self, view: ArenaView, commands: Connection, process: BaseProcess) -> None:
        self.view, self.commands, self.process = view, commands, process

    def ask(self, *command: Any) -> Any:
        self.commands.send(command)
        assert self.commands.poll(60), "the worker does not answer"
        return self.commands.recv()

    def stats(self) -> ArenaStats:
        found = self.ask("stats")
        assert isinstance(found, ArenaStats)
        return found

    def result(self, value: float, elements: int = 9000, copies: int = 1) -> list[torch.Tensor]:
        got = self.view.unpack(self.ask("fill", value, elements, copies))
        assert isinstance(got, list)
        return got


@contextmanager
def worker_behind(segments: Any, theirs: Any) -> Iterator[Worker]:
    commands, their_commands = SPAWN.Pipe()
    process = SPAWN.Process(target=worker_process.work, args=(theirs, their_commands), daemon=True)
    process.start()
    theirs.close()
    their_commands.close()
    view = ArenaView.connect(segments, timeout=60)
    segments.close()
    try:
        yield Worker(view, commands, process)
    finally:
        if process.is_alive():
            commands.send(None)
        process.join(60)
        process.close()
        commands.close()
        view.close()


def test_a_worker_and_its_parent() -> None:
    """The whole life, in one process pair as starting one takes seconds."""
    with worker_behind(*socket.socketpair()) as worker:
        _nests_arrive(worker)
        _leases_come_back(worker)
        _the_view_follows_growth(worker)
        _no_descriptor_is_left_in_the_worker(worker)
        _a_killed_worker_leaves_results(worker)
    assert lease_module.open_leases() == 0


def _nests_arrive(worker: Worker) -> None:
    assert same(worker.view.unpack(worker.ask("nest")), worker_process.nest())
    (got,) = worker.result(3.0)
    assert got.eq(3).all()


def _leases_come_back(worker: Worker) -> None:
    first, second = worker.result(1.0, copies=2)
    address, array = first.data_ptr(), first.numpy()[7:]
    del first
    assert worker.stats().lent == 2
    del second
    assert worker.stats().lent == 1
    assert array[0] == 1.0
    del array
    assert worker.ask("wait", 10)
    assert worker.stats().lent == 0
    assert worker.result(2.0)[0].data_ptr() == address


def _the_view_follows_growth(worker: Worker) -> None:
    kept = [worker.result(float(i), elements=MB // 2) for i in range(6)]
    assert worker.stats().segments > 1
    for i, (tensor,) in enumerate(kept):
        assert tensor.eq(i).all()


def _no_descriptor_is_left_in_the_worker(worker: Worker) -> None:
    before = worker.ask("descriptors")
    for i in range(50):
        assert worker.result(float(i), copies=3)[2][0] == i
    assert worker.ask("descriptors") == before


def _a_killed_worker_leaves_results(worker: Worker) -> None:
    kept = worker.result(6.0, copies=2)
    late = worker.ask("fill", 7.0, 9000, 1)
    os.kill(worker.process.pid or 0, signal.SIGKILL)
    worker.process.join(60)
    (arrived,) = worker.view.unpack(late)
    assert arrived.eq(7).all(), "what had arrived is delivered after the worker's death"
    assert kept[0].eq(6).all()
    kept[1].fill_(1)
    kept.clear()
    del arrived  # returning to a dead worker is no error


@pytest.mark.parametrize("how", ["killed", "exits"])
def test_blocks_of_a_consumer_that_ends_are_the_workers_again(how: str) -> None:
    """Over a socket pair, and over a pipe of multiprocessing, which is one."""
    ours, theirs = socket.socketpair() if how == "killed" else SPAWN.Pipe()
    packets, their_packets = SPAWN.Pipe()
    with Arena(CpuPlatform(), cap=16 * MB, segment_bytes=4 * MB) as arena:
        process = SPAWN.Process(
            target=worker_process.consume, args=(theirs, their_packets), daemon=True
        )
        process.start()
        arena.connect(ours)
        for end in (ours, theirs, their_packets):
            end.close()
        packets.send(arena.pack([torch.ones(9000), torch.full((9000,), 2.0)]).data)
        assert packets.poll(60)
        assert packets.recv() == [9000.0, 18000.0]
        packets.send("let go")
        assert packets.recv()
        assert arena.stats().lent == 0
        packets.send(arena.pack([torch.ones(9000)]).data)
        packets.recv()
        arena.pack([torch.ones(9000)])  # on its way when the consumer dies
        assert arena.stats().lent == 2
        if how == "killed":
            os.kill(process.pid or 0, signal.SIGKILL)
        else:
            packets.send(None)
        assert arena.wait_for_returns(60)
        assert arena.consumer_gone
        assert arena.stats().used_bytes == 0
        process.join(60)
        process.close()
        packets.close()


def test_a_consumer_that_dies_before_it_connects() -> None:
    ours, theirs = socket.socketpair()
    with ours, Arena(CpuPlatform(), cap=16 * MB, segment_bytes=4 * MB) as arena:
        arena.connect(ours)
        arena.pack(torch.ones(9000))
        assert not arena.consumer_gone
        theirs.close()
        assert arena.consumer_gone
        assert arena.stats().used_bytes == 0
        with pytest.raises(ArenaClosedError, match="consumer"):
            arena.reserve(8 * MB)
