"""Who wants to know about executors: nobody, until somebody asks (`omni_platforms.observe`).

Executors know only this module. Each announces itself once, when it is made; nothing here runs
for an output. Whoever watches puts its own step around methods of the object that was announced,
or gives it another type of future, and takes both away again: what nobody watches has neither.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

logger = logging.getLogger(__name__)

Kind = Literal["outputs", "engine", "worker"]
"""An `AsyncOutputExecutor`, the engine of a `MultiprocExecutor`, the parts of a worker process."""


class Made(NamedTuple):
    """One object that announced itself, while it lives."""

    kind: Kind
    number: int
    """Counts the objects of its kind in this process, from 0."""
    thing: Any


Watcher = Callable[[Made], None]

_lock = threading.RLock()
_live: dict[int, tuple[Kind, int, weakref.ref[Any]]] = {}
_watchers: list[Watcher] = []
_numbers = {kind: itertools.count() for kind in ("outputs", "engine", "worker")}


def announce(kind: Kind, thing: object) -> None:
    """Say that an executor, or a worker, is there. Called once for each, by its maker's thread."""
    key, number = id(thing), next(_numbers[kind])
    with _lock:
        _live[key] = (kind, number, weakref.ref(thing, lambda _: _live.pop(key, None)))
        watchers = list(_watchers)
    for watcher in watchers:
        _tell(watcher, Made(kind, number, thing))


def live() -> list[Made]:
    """Return everything that announced itself and still lives, oldest first. Does not block."""
    with _lock:
        known = list(_live.values())
    made = [Made(kind, number, reference()) for kind, number, reference in known]
    return [each for each in made if each.thing is not None]


def watch(watcher: Watcher) -> None:
    """Call `watcher` for everything that lives, and for whatever is announced later.

    What it raises is logged, and nobody else notices.
    """
    with _lock:
        _watchers.append(watcher)
        known = live()
    for made in known:
        _tell(watcher, made)


def unwatch(watcher: Watcher) -> None:
    """Call `watcher` no more; one that is not there is ignored."""
    with _lock:
        if watcher in _watchers:
            _watchers.remove(watcher)


def _in_child() -> None:
    """In a forked child: what lives is its parent's, and whoever held the lock is not there."""
    global _lock
    _lock = threading.RLock()
    _live.clear()


os.register_at_fork(after_in_child=_in_child)


def _tell(watcher: Watcher, made: Made) -> None:
    try:
        watcher(made)
    except Exception:
        logger.exception("watching %s %d failed", made.kind, made.number)
