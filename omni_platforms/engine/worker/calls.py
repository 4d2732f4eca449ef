"""Calls of the worker's methods, and what `sleep` and `wake_up` mean for requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omni_platforms.engine.messages import Call
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.worker.output_thread import OutputThread
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.errors import UnknownMethodError, WorkerAsleepError

SLEEP, WAKE_UP = "sleep", "wake_up"


class Calls:
    """Runs calls on the main thread, between two requests."""

    def __init__(
        self, worker: Any, outputs: OutputThread, reporter: Reporter, drain_timeout: float
    ) -> None:
        self._worker = worker
        self._outputs = outputs
        self._reporter = reporter
        self._drain_timeout = drain_timeout
        self._asleep = False

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
        method = self._method(call.method)
        args, kwargs = call.arguments.load()
        # Copies that still read what `sleep` is about to release: it is refused, not risked.
        default = self._drain_timeout if call.method == SLEEP else None
        drain = default if call.drain is None else call.drain
        if drain is not None:
            self._outputs.drain(drain)
        result = method(*args, **kwargs)
        if call.method in (SLEEP, WAKE_UP):
            self._asleep = call.method == SLEEP
        return result

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
