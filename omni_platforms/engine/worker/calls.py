"""Calls of the worker's methods, and what `sleep` and `wake_up` mean for requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omni_platforms.engine.messages import TRIM, Call
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.worker.output_thread import OutputThread
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.errors import UnknownMethodError, WorkerAsleepError
from omni_platforms.shm import Arena

SLEEP, WAKE_UP = "sleep", "wake_up"


class Calls:
    """Runs calls on the main thread, between two requests."""

    def __init__(
        self,
        worker: Any,
        arena: Arena,
        outputs: OutputThread,
        reporter: Reporter,
        drain_timeout: float,
    ) -> None:
        self._worker = worker
        self._arena = arena
        self._outputs = outputs
        self._reporter = reporter
        self._drain_timeout = drain_timeout
        self._asleep = False
        self._to_reserve = 0
        """Bytes of shared memory that are had again before the first request after a sleep."""

    def check_awake(self) -> None:
        """Raise `WorkerAsleepError` between `sleep` and `wake_up`."""
        if self._asleep:
            raise WorkerAsleepError(
                "the worker sleeps, so it has no memory for a request: call wake_up() first"
            )

    def failure(self, call: Call) -> BaseException | None:
        """Run a call and send its reply, or return the error that is its reply."""
        try:
            result = Pickled.of(self._call(call))
        except BaseException as error:  # noqa: BLE001  it is the reply
            return error
        self._reporter.result(call.id, result=result)
        return None

    def _call(self, call: Call) -> Any:
        if call.method == TRIM:
            return self._trim()
        method = self._method(call.method)
        args, kwargs = call.arguments.load()
        # Copies that still read what `sleep` is about to release: it is refused, not risked.
        default = self._drain_timeout if call.method == SLEEP else None
        drain = default if call.drain is None else call.drain
        if drain is not None:
            self._outputs.drain(drain)
        if call.method == WAKE_UP and self._to_reserve:
            self._arena.reserve(self._to_reserve)
            self._to_reserve = 0
        result = method(*args, **kwargs)
        if call.method in (SLEEP, WAKE_UP):
            self._asleep = call.method == SLEEP
        return result

    def _trim(self) -> int:
        if self._asleep:
            self._to_reserve = max(self._to_reserve, self._arena.stats().total_bytes)
        return self._arena.trim()

    def _method(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(self._worker, name, None)
        if not callable(method):
            kind = type(self._worker)
            raise UnknownMethodError(
                f"the worker class {kind.__module__}.{kind.__qualname__} has no public method "
                f"{name!r}: add it, or call another"
            )
        found: Callable[..., Any] = method
        return found
