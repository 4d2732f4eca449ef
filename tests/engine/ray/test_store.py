"""Outputs by way of an object store, whose place a list of arrays takes here."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pytest
import torch

from omni_platforms import ArenaFullError, CorruptPacketError, WorkerDiedError
from omni_platforms.engine.ledger_records import Outcome
from omni_platforms.engine.ray.store import StoreBudget, StoreView
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena
from omni_platforms.shm.lease import open_leases
from omni_platforms.shm.packet import BlockRecord
from omni_platforms.shm.reader import BlockReader
from tests.engine.fakes import PATIENCE, until
from tests.shm.conftest import open_descriptors

MB = 1 << 20


class Store:
    """An arena, its reader on the worker's host, and the view at the driver."""

    def __init__(self, arena: Arena, reader: BlockReader, cap: int) -> None:
        self.arena, self.reader = arena, reader
        self.budget = StoreBudget(cap)
        self.view = StoreView("worker 7", self.take, self.give_back, self.budget)
        self.fails: BaseException | None = None
        self.gate = threading.Event()
        self.gate.set()

    def take(self, blocks: Sequence[BlockRecord]) -> list[Any]:
        assert self.gate.wait(PATIENCE)
        if self.fails is not None:
            raise self.fails
        exporters = self.reader.lease_blocks(blocks)
        copies = [numpy.frombuffer(exporter, numpy.uint8).copy() for exporter in exporters]
        for copy in copies:
            copy.flags.writeable = False  # as Ray's are
        return copies

    def give_back(self, blocks: Sequence[BlockRecord]) -> None:
        self.reader.lease_blocks(blocks)

    def fetch(self, nest: Any) -> list[Outcome]:
        come: list[Outcome] = []
        self.view.fetch(self.arena.pack(nest).data, come.append)
        return come


@pytest.fixture
def store() -> Iterator[Store]:
    import socket

    gc.collect()
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    with ours, theirs, Arena(CpuPlatform(), segment_bytes=4 * MB, cap=8 * MB) as arena:
        arena.connect(ours)
        with BlockReader.connect(theirs) as reader:
            made = Store(arena, reader, 2 * MB)
            yield made
            made.view.close()
            made.budget.close()
            if made.budget._thread is not None:
                made.budget._thread.join(PATIENCE)
    del made
    gc.collect()
    assert open_descriptors() == before


def value(come: list[Outcome]) -> Any:
    until(lambda: come)
    outcome = come.pop()
    assert outcome.error is None, outcome.error
    return outcome.value


def test_an_output_arrives_whole_and_its_blocks_are_the_workers_at_once(store: Store) -> None:
    image = torch.arange(100_000, dtype=torch.bfloat16).reshape(100, 1000)
    nest = {"image": image, "small": torch.ones(3), "array": numpy.ones(20_000), "n": 5}
    got = value(store.fetch(nest))
    assert torch.equal(got["image"], image)
    assert torch.equal(got["small"], torch.ones(3))
    assert (got["array"] == 1).all()
    assert got["n"] == 5
    assert store.arena.stats().used_bytes == 0, "copied, and free for the next output"
    got["image"][0] = 7  # results are writable, as on one host
    assert store.budget.used == 200_000 + 160_000
    row = got["image"][1]
    del got
    gc.collect()
    until(lambda: store.budget.used == 200_000)
    assert row[0] == image[1, 0]
    del row
    gc.collect()
    until(lambda: store.budget.used == 0)
    assert open_leases() == 0


def test_a_small_output_needs_no_store(store: Store) -> None:
    store.gate.clear()
    come = store.fetch({"tokens": torch.arange(10)})
    assert come, "delivered before `fetch` returned"
    assert store.budget.used == 0


def check_the_budget_holds_back(store: Store) -> None:
    held = [value(store.fetch(torch.ones(MB // 8))) for _ in range(4)]  # 0.5 MB each, of 2 MB
    waiting = store.fetch(torch.full((MB // 8,), 5.0))
    until(lambda: waiting or store.budget.waiting)
    assert not waiting
    assert store.arena.stats().lent == 1
    assert store.budget.used <= 2 * MB, "memory is bounded"
    held.pop()
    gc.collect()
    assert value(waiting).eq(5).all()


def test_what_has_no_room_waits_in_the_workers_arena(store: Store) -> None:
    check_the_budget_holds_back(store)


def test_planted_a_budget_that_always_has_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreBudget, "_fits", lambda *_: True)
    with pytest.raises(AssertionError):
        check_the_budget_holds_back(store)


def test_an_output_that_never_fits_fails_alone_and_says_why(store: Store) -> None:
    come = store.fetch(torch.ones(MB))
    until(lambda: come)
    error = come[0].error
    assert isinstance(error, ArenaFullError)
    assert error.untouched, "the worker is told that its blocks are its own again"
    assert "store_cap" in str(error)
    assert value(store.fetch(torch.ones(9000))).eq(1).all()


def test_a_damaged_packet_fails_alone(store: Store) -> None:
    packet = store.arena.pack(torch.ones(9000))
    come: list[Outcome] = []
    store.view.fetch(packet.data[:-1] + b"x" + packet.data[:3], come.append)
    assert isinstance(come[0].error, CorruptPacketError)
    assert come[0].error.untouched
    store.view.discard(packet.data)
    assert store.arena.stats().lent == 0


@pytest.mark.parametrize("what", ["ray", "agent"])
def test_what_is_lost_on_its_way_fails_and_frees_its_room(store: Store, what: str) -> None:
    store.fails = ConnectionError("the node is gone")
    if what == "agent":
        store.fails.cause = CorruptPacketError("no such block")  # type: ignore[attr-defined]
    come = store.fetch(torch.ones(9000))
    until(lambda: come)
    assert isinstance(come[0].error, WorkerDiedError if what == "ray" else CorruptPacketError)
    assert store.budget.used == 0


def test_at_the_end_what_is_on_its_way_is_delivered_and_what_waits_fails(store: Store) -> None:
    store.gate.clear()
    first, second = store.fetch(torch.ones(9000)), store.fetch(torch.ones(9000))
    threading.Timer(0.05, store.gate.set).start()
    until(lambda: store.budget.used)
    store.view.finish()
    assert value(first).eq(1).all()
    assert isinstance(second[0].error, WorkerDiedError)


def test_results_outlive_view_and_budget(store: Store) -> None:
    result = value(store.fetch(torch.ones(9000)))
    store.view.close()
    store.budget.close()
    gc.collect()
    assert result.eq(1).all()
    del result
    gc.collect()
    assert open_leases() == 0
