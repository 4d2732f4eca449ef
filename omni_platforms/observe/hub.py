"""The sinks of this process, and who listens to what for them.

With the first sink every executor that lives, or is made later, gets steps around its methods and
futures that tell; with the last one gone, they are taken away. Without a sink nothing is there.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from omni_platforms import observers
from omni_platforms.observe.sink import Record, Sink

logger = logging.getLogger(__name__)

_lock = threading.RLock()
_sinks: tuple[Sink, ...] = ()  # replaced, never changed
_failed: set[str] = set()


def add(sink: Sink) -> None:
    """Let `sink` hear of everything from now on. Any thread."""
    global _sinks
    with _lock:
        first = not _sinks
        _sinks = (*_sinks, sink)
        if first:
            observers.watch(_attach)


def remove(sink: Sink) -> None:
    """Let `sink` hear no more. One that is not there is ignored. Any thread."""
    global _sinks
    with _lock:
        if sink not in _sinks:
            return
        _sinks = tuple(other for other in _sinks if other is not sink)
        if not _sinks:
            observers.unwatch(_attach)
            for made in observers.live():
                _detach(made)


def sinks() -> tuple[Sink, ...]:
    """Return those that hear now."""
    return _sinks


def _in_child() -> None:
    """In a forked child: another thread may have held the lock, and does not exist there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_in_child)


# What happens -------------------------------------------------------------------


def step(name: str, subject: str = "") -> _Steps:
    """Return the context of one step of the calling thread; `about` may name its output later."""
    return _Steps([c for sink in _sinks if (c := _told(sink.step, name, subject)) is not None])


def opened(record: Record) -> None:
    """Tell that something has begun."""
    for sink in _sinks:
        _told(sink.opened, record)


def closed(record: Record) -> None:
    """Tell that it has ended."""
    for sink in _sinks:
        _told(sink.closed, record)


class _Steps:
    """The contexts of all sinks for one step. None of them can fail it, or swallow its error."""

    def __init__(self, contexts: list[AbstractContextManager[Any]]) -> None:
        self._contexts = contexts

    def about(self, subject: str) -> None:
        """Say which output the step is for, where that is known only later."""
        for context in self._contexts:
            tell = getattr(context, "about", None)
            if tell is not None:
                _told(tell, subject)

    def __enter__(self) -> _Steps:
        for context in self._contexts:
            _told(context.__enter__)
        return self

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._contexts):
            _told(context.__exit__, *error)


def _told(tell: Callable[..., Any], *what: Any) -> Any:
    """Call a sink. An observer that fails must not fail what it observes."""
    try:
        return tell(*what)
    except Exception:
        name = f"{tell.__module__}.{tell.__qualname__}"
        if name not in _failed:
            _failed.add(name)
            logger.exception("an observer failed, and is not reported again")
        return None


# Who listens --------------------------------------------------------------------


def _attach(made: observers.Made) -> None:
    _listener(made).attach(made)


def _detach(made: observers.Made) -> None:
    _listener(made).detach(made)


def _listener(made: observers.Made) -> Any:
    """Return the module that listens to such an object; it imports what the object needs."""
    if made.kind == "outputs":
        from omni_platforms.observe import of_outputs

        return of_outputs
    if made.kind == "engine":
        from omni_platforms.observe import of_engine

        return of_engine
    from omni_platforms.observe import of_worker

    return of_worker
