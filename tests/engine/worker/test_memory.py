"""Drops, a full arena, and what a worker keeps and does when it is idle: nothing."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from omni_platforms.engine.messages import Kind
from omni_platforms.errors import ArenaFullError
from tests.engine.driver import Driver

pytestmark = pytest.mark.xdist_group("engine_worker")

LARGE = 1_500_000  # elements: two such outputs leave the arena, of 16 MiB, no room for a third


# Drops ------------------------------------------------------------------------


def test_a_queued_request_that_is_dropped_never_runs(worker: Driver, tmp_path: Path) -> None:
    running = worker.send_request(("wait_for", str(tmp_path / "go")))
    queued = worker.send_request(("fail", "it would show"))
    worker.drop(queued)
    assert worker.hear(Kind.DROPPED, queued).error is None, "at once, behind a long forward"
    assert worker.seen == []
    (tmp_path / "go").touch()
    worker.hear(Kind.COMPUTE_DONE, running)
    worker.output(running)
    assert worker.run(1) == 1


def test_a_running_request_is_acknowledged_when_it_has_ended(
    worker: Driver, tmp_path: Path
) -> None:
    name = worker.send_request(("wait_for", str(tmp_path / "go")))
    worker.await_phase(name, "compute")
    worker.drop(name)
    rows = worker.call("omni.describe")
    assert [(row["id"], row["phase"], row["dropped"]) for row in rows] == [(name, "compute", True)]
    assert worker.seen == [], "it still runs"
    (tmp_path / "go").touch()
    worker.hear(Kind.COMPUTE_DONE, name)
    worker.hear(Kind.DROPPED, name)
    assert worker.run(1) == 1


def test_a_member_of_a_batch_can_be_dropped(worker: Driver, tmp_path: Path) -> None:
    running = worker.send_request(("wait_for", str(tmp_path / "go")))
    batch = worker.send_batch({"a": 1, "bb": 2, "ccc": 3})
    worker.drop(f"{batch}/bb")
    worker.hear(Kind.DROPPED, f"{batch}/bb")
    (tmp_path / "go").touch()
    worker.hear(Kind.COMPUTE_DONE, running)
    worker.output(running)
    assert worker.hear(Kind.COMPUTE_DONE, batch).members == (f"{batch}/a", f"{batch}/ccc")
    assert worker.output(f"{batch}/a").eq(1).all()
    assert worker.output(f"{batch}/ccc").eq(3).all()


def test_what_was_sent_or_never_was_is_acknowledged_after_it(worker: Driver) -> None:
    name = worker.send_request(1)
    worker.hear(Kind.OUTPUT_READY, name)
    worker.hear(Kind.COMPUTE_DONE, name)
    worker.drop(name, "never asked for")
    worker.hear(Kind.DROPPED, name)
    worker.hear(Kind.DROPPED, "never asked for")


# Memory -----------------------------------------------------------------------


def test_an_idle_worker_keeps_no_output(worker: Driver) -> None:
    worker.call("pause_collector")
    worker.run(("fill", (1, 100_000)))
    with pytest.raises(ValueError, match="no output"):
        worker.run(("fail", "output"))
    name = worker.send_request(("fill", (1, 100_000)))
    worker.drop(name)
    worker.hear(Kind.DROPPED, name)
    worker.throw_away()  # it may have been sent before
    worker.send_batch({"a": 1})
    worker.hear_if(lambda message: message.kind is Kind.OUTPUT_READY)
    worker.throw_away()
    assert worker.call("alive") == 0


def test_planted_an_output_that_somebody_keeps_is_seen(worker: Driver) -> None:
    assert worker.call("keep_one") == 1
    assert worker.call("let_go") == 0


def test_a_full_arena_holds_outputs_back_until_the_consumer_lets_go(worker: Driver) -> None:
    held = [worker.run(("fill", (i, LARGE))) for i in range(2)]
    late = worker.send_request(("fill", (7, LARGE)))
    assert worker.hear(Kind.COMPUTE_DONE, late).error is None, "the forward has ended"
    worker.await_phase(late, "room")
    assert worker.seen == []
    held.pop()
    assert worker.output(late).eq(7).all()
    assert held[0].eq(0).all()


def test_an_output_that_waits_for_room_can_be_dropped(worker: Driver) -> None:
    held = [worker.run(("fill", (i, LARGE))) for i in range(2)]
    late = worker.send_request(("fill", (7, LARGE)))
    worker.hear(Kind.COMPUTE_DONE, late)
    worker.await_phase(late, "room")
    worker.drop(late)
    worker.hear(Kind.DROPPED, late)
    assert worker.run("small") == "small"
    assert held[1].eq(1).all()


def test_an_output_that_never_fits_fails_at_once(worker: Driver) -> None:
    held = worker.run(("fill", (3, 9000)))
    with pytest.raises(ArenaFullError, match="larger than the whole arena"):
        worker.run(("fill", (1, 5_000_000)))
    assert worker.run("small") == "small"
    assert held.eq(3).all()


# Cost -------------------------------------------------------------------------


def test_an_idle_worker_does_nothing(worker: Driver) -> None:
    """Its threads are not woken, but for those that answer the two questions."""
    worker.call("facts")
    before = worker.call("facts")
    time.sleep(1.0)
    after = worker.call("facts")
    assert after["switches"] - before["switches"] < 40
    assert after["cpu"] - before["cpu"] < 0.02


def test_a_long_life_leaves_no_descriptor(worker: Driver) -> None:
    worker.run(("fill", (0, 50_000)))
    before = worker.call("facts")
    for i in range(100):
        assert worker.run(("fill", (i, 50_000)))[-1] == i
    after = worker.call("facts")
    assert after["descriptors"] == before["descriptors"]
    assert after["threads"] == before["threads"]


def test_drops_at_any_moment_are_acknowledged_once_and_leave_nothing(worker: Driver) -> None:
    chance = random.Random(5)
    names: list[str] = []
    dropped: set[str] = set()
    for i in range(150):
        names.append(worker.send_request(("fill", (i, 20_000))))
        worker.hear_what_is_there()
        victim = chance.choice(names[-6:])
        if victim not in dropped:
            dropped.add(victim)
            worker.drop(victim)
    worker.call("facts")  # the main thread has done with all
    worker.await_nothing_left()
    heard = {name: [m.kind for m in worker.seen if m.id == name] for name in names}
    for name, kinds in heard.items():
        if name in dropped:
            assert kinds.count(Kind.DROPPED) == 1
            assert kinds[-1] is Kind.DROPPED
        else:
            assert kinds == [Kind.COMPUTE_DONE, Kind.OUTPUT_READY]
    assert 40 < len(dropped) < 140
    worker.throw_away()
    assert worker.call("alive") == 0


def test_a_parent_that_does_not_read_for_a_while_loses_nothing(worker: Driver) -> None:
    """The worker's side of the socket fills up; it goes on where it stopped."""
    names = [worker.send_request(i) for i in range(400)]
    waiting, before = psutil.Process(worker.process.pid), -1.0
    while (now := sum(waiting.cpu_times()[:2])) != before:  # until it has come to a stop
        before = now
        time.sleep(0.1)
    assert [worker.output(name) for name in names] == list(range(400))
    done = [message.id for message in worker.seen if message.kind is Kind.COMPUTE_DONE]
    assert done == names
    worker.throw_away()
