"""Listening to a `MultiprocExecutor` in the process that has it: callers, pumps and futures."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Mapping
from typing import Any

from omni_platforms.engine.future import EngineFuture
from omni_platforms.engine.lifecycle import Engine
from omni_platforms.observe import hub
from omni_platforms.observe.around import put_around, take_away
from omni_platforms.observe.sink import Record, name_of, now
from omni_platforms.observers import Made


def attach(made: Made) -> None:
    """Listen to an engine."""
    engine: Engine = made.thing
    asking = engine.asking
    asking.future_type = functools.partial(ObservedEngineFuture, f"engine {made.number}")
    put_around(asking, "submit", _submit)
    put_around(asking, "submit_batch", _submit)
    put_around(engine.crew, "start", functools.partial(_start, engine.crew.pumps))
    for pump in list(engine.crew.pumps.values()):
        put_around(pump, "handle", _handle)


def detach(made: Made) -> None:
    """Listen no more. Futures that are out tell of their end all the same."""
    engine: Engine = made.thing
    engine.asking.future_type = EngineFuture
    take_away(engine.asking, "submit", "submit_batch")
    take_away(engine.crew, "start")
    for pump in list(engine.crew.pumps.values()):
        take_away(pump, "handle")


def _submit(submit: Any, *args: Any, **kwargs: Any) -> Any:
    with hub.step("submit") as step:
        future = submit(*args, **kwargs)
        step.about(future.async_output_id)
        return future


def _start(pumps: Mapping[int, Any], start: Any, rank: int, receiver: Any) -> None:
    """Listen to a worker that came later, too."""
    start(rank, receiver)
    put_around(pumps[rank], "handle", _handle)


def _handle(handle: Any, message: Any) -> None:
    with hub.step(f"receive {message.kind.name}", getattr(message, "id", "")):
        handle(message)


class ObservedEngineFuture(EngineFuture):
    """An `EngineFuture` that tells of its begin, of its end, and of who waits for it."""

    def __init__(self, source: str, output_id: str, owner: Any, timeout: float | None = None):
        super().__init__(output_id, owner, timeout)
        self.record = Record("request" if timeout is None else "arrival", output_id, source)
        hub.opened(self.record)

    def set_result(self, result: Any) -> None:
        """Settle it, and tell of it."""
        super().set_result(result)
        self._tell(None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Settle it with an error, and tell of it."""
        super().set_exception(exception)
        self._tell(exception)

    def cancel(self) -> bool:
        """Drop the output, and tell of it."""
        given_up = super().cancel()
        if given_up:
            self._tell(concurrent.futures.CancelledError())
        return given_up

    def result(self, timeout: float | None = None) -> Any:
        """Block until it is here and return it: a step of the calling thread."""
        try:
            with hub.step("result", self.async_output_id):
                return super().result(timeout)
        finally:
            del self  # the error's traceback has this frame: it would be a cycle

    def _tell(self, error: BaseException | None) -> None:
        first = object()
        if self.__dict__.setdefault("_told", first) is not first:
            return
        record = self.record
        record.closed, record.error = now(), name_of(error)
        if self.origin is not None:
            record.facts["rank"] = self.origin.rank
            record.moments.update(self.origin.stamps)
        hub.closed(record)
