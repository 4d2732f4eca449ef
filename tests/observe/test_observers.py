"""Executors announce themselves once, to whoever watches, and are let go."""

from __future__ import annotations

import gc
import logging
import os
import threading

import pytest

from omni_platforms import observers
from omni_platforms.observers import Made, announce, live, unwatch, watch


class Thing:
    pass


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests announce is no executor, and must not be there for others."""
    monkeypatch.setattr(observers, "_live", {})


def mine() -> list[Made]:
    return [made for made in live() if isinstance(made.thing, Thing)]


def test_things_are_numbered_and_let_go() -> None:
    things = [Thing(), Thing()]
    for thing in things:
        announce("outputs", thing)
    first, second = mine()
    assert second.number == first.number + 1
    assert [made.thing for made in (first, second)] == things
    del first, second, thing
    del things[0]
    gc.collect()
    assert len(mine()) == 1
    things.clear()
    gc.collect()
    assert mine() == []


def test_a_watcher_hears_of_what_is_there_and_of_what_comes() -> None:
    early, late, after = Thing(), Thing(), Thing()
    announce("engine", early)
    seen: list[object] = []

    def see(made: Made) -> None:
        if isinstance(made.thing, Thing):
            seen.append(made.thing)

    watch(see)
    announce("engine", late)
    unwatch(see)
    unwatch(see)  # two threads may come to it
    announce("engine", after)
    assert seen == [early, late]


def test_a_watcher_that_takes_itself_away_is_called_no_more_than_needed() -> None:
    things = [Thing(), Thing()]
    for thing in things:
        announce("outputs", thing)
    calls: list[Made] = []

    def once(made: Made) -> None:
        calls.append(made)
        unwatch(once)

    watch(once)
    announce("outputs", Thing())
    assert once not in observers._watchers
    assert all(made.kind for made in calls)


def test_a_watcher_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(made: Made) -> None:
        raise OSError("no")

    seen: list[Made] = []
    watch(fail)
    watch(seen.append)
    with caplog.at_level(logging.ERROR):
        announce("outputs", Thing())
    unwatch(fail)
    unwatch(seen.append)
    assert seen
    assert "watching outputs" in caplog.text


def test_a_child_that_is_forked_meanwhile_is_not_held_up() -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with observers._lock:
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    child = os.fork()
    if not child:
        announced = threading.Thread(target=announce, args=("outputs", Thing()), daemon=True)
        announced.start()
        announced.join(20)
        os._exit(1 if announced.is_alive() else 0)
    let_go.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
