"""The driver's handle of a worker, whose actor a test plays: what Ray says of it, and when."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from omni_platforms.engine.channel import Channel, pair
from omni_platforms.engine.messages import AsyncOutput, Kind, Setup
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.ray import clock as clock_module
from omni_platforms.engine.ray import worker as worker_module
from omni_platforms.engine.ray.agent import Exit, Report
from omni_platforms.engine.ray.clock import ShiftedChannel
from omni_platforms.engine.ray.worker import RayWorker
from omni_platforms.errors import ChannelClosedError
from tests.engine.fakes import PATIENCE, until


class ActorUnavailableError(Exception):
    """Has the name of Ray's."""


class Actor:
    """Answers `wait_exit` when the test does."""

    def __init__(self) -> None:
        self.asked: list[concurrent.futures.Future[Exit]] = []
        self.wait_exit = SimpleNamespace(remote=lambda: SimpleNamespace(future=self._ask))

    def _ask(self) -> concurrent.futures.Future[Exit]:
        self.asked.append(concurrent.futures.Future())
        return self.asked[-1]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayWorker]:
    killed: list[Any] = []
    monkeypatch.setattr(worker_module, "is_connected", lambda: True)
    monkeypatch.setattr(worker_module, "load_ray", lambda: SimpleNamespace(kill=killed.append))
    monkeypatch.setattr(worker_module, "_ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(RayWorker, "_make_actor", lambda self: Actor())
    placement = SimpleNamespace(take=lambda: None, give_back=lambda slot: None)
    site: Any = SimpleNamespace(placement=placement, leave=lambda worker: None)
    made = RayWorker(Setup("a:B", Pickled.of(None), rank=3), site)
    made.report = Report(77, "node", "10.0.0.2", False, 0)
    ours, theirs = pair()
    made._channel = ShiftedChannel(ours, made._death)
    made._watch()
    yield made
    made.close()
    theirs.close()
    assert killed, "the actor goes with the worker"


def test_an_exit_is_known_and_wakes_who_receives(worker: RayWorker) -> None:
    (asked,) = worker._actor.asked
    assert (worker.is_alive(), worker.state()) == (True, "running")
    threading.Timer(0.02, asked.set_result, [Exit("killed by SIGKILL", " it said")]).start()
    with pytest.raises(ChannelClosedError):
        worker.channel.receive(PATIENCE)
    assert worker.wait_exit(PATIENCE)
    assert (worker.is_alive(), worker.state()) == (False, "killed by SIGKILL")
    assert worker.printed_note() == " it said"


def test_an_actors_death_is_an_exit_with_rays_words(worker: RayWorker) -> None:
    text = "The actor died.\n\tclass_name: Agent\n\tpid: 7\nThe node was killed."
    worker._actor.asked[0].set_exception(RuntimeError(text))
    assert worker.state() == "The actor died. The node was killed."


def check_a_hiccup_of_ray_ends_nothing(worker: RayWorker) -> None:
    worker._actor.asked[0].set_exception(ActorUnavailableError("RPC error: Socket closed"))
    assert worker.is_alive()
    until(lambda: len(worker._actor.asked) == 2)
    with pytest.raises(TimeoutError):
        worker.channel.receive(0.01)
    assert worker.state() == "its actor does not answer: RPC error: Socket closed"
    worker._actor.asked[1].set_result(Exit("exit status 0", ""))
    assert worker.state() == "exit status 0"


def test_a_hiccup_of_ray_ends_nothing(worker: RayWorker) -> None:
    check_a_hiccup_of_ray_ends_nothing(worker)


def test_planted_whatever_ray_says_is_an_end(
    worker: RayWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_UNREACHABLE", "nothing")
    with pytest.raises(AssertionError):
        check_a_hiccup_of_ray_ends_nothing(worker)


def test_a_worker_whose_actor_is_silent_can_be_killed(worker: RayWorker) -> None:
    worker._actor.asked[0].set_exception(ActorUnavailableError("gone"))
    assert worker.kill()
    assert not worker.is_alive()


def test_stamps_of_another_host_are_in_this_ones_time() -> None:
    ours, theirs = pair()
    here, there = ShiftedChannel(ours), Channel(theirs)
    here.shift = -100.0
    there.send(AsyncOutput(Kind.OUTPUT_READY, "r1", stamps={"compute": 107.5}))
    message = here.receive(PATIENCE)
    assert isinstance(message, AsyncOutput)
    assert message.stamps == {"compute": 7.5}
    here.close()
    there.close()


def test_the_quickest_answer_tells_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their clock is 1000 s ahead; the first answer takes long on its way back."""
    now = iter([0.0, 4.0, 10.0, 10.2, 20.0, 21.0])
    theirs = iter([1000.5, 1010.1, 1020.9])
    ray = SimpleNamespace(get=lambda value: value)
    monkeypatch.setattr(clock_module, "load_ray", lambda: ray)
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: next(now))
    actor = SimpleNamespace(clock=SimpleNamespace(remote=lambda: next(theirs)))
    shift = clock_module.shift_of(actor)
    monkeypatch.undo()
    assert shift == pytest.approx(-1000.0)
