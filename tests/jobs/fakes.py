"""An executor without processes, which a test tells what comes of each request and when."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from omni_platforms.engine import EngineFuture, Origin
from omni_platforms.errors import ExecutorClosedError

STAMPS = {"queue": 1.0, "compute": 2.0, "room": 3.0, "gate": 3.1, "copy": 5.0, "send": 6.0}


class FakeExecutor:
    """Answers a request with what `answer` returns, or raises, once `hold` requests are open."""

    def __init__(self, answer: Callable[[Any], Any], hold: int = 1) -> None:
        self.failure: BaseException | None = None
        self.shutdowns: list[float] = []
        self.given_up: list[str] = []
        self._answer = answer
        self._hold = hold
        self._numbers = itertools.count(1)
        self.open: list[tuple[Any, EngineFuture, EngineFuture]] = []
        self.most_open = 0

    def submit(self, request: Any) -> EngineFuture:
        if self.failure is not None:
            raise ExecutorClosedError("the executor has ended") from self.failure
        name = f"r{next(self._numbers)}"
        computed, output = (EngineFuture(name, self) for _ in range(2))
        self.open.append((request, computed, output))
        self.most_open = max(self.most_open, len(self.open))
        return computed

    def wait_output_ready(self, async_output_id: str) -> EngineFuture:
        output = next(o for _, _, o in self.open if o.async_output_id == async_output_id)
        if len(self.open) >= self._hold:
            self.answer_all()
        return output

    def answer_all(self) -> None:
        """End all open requests."""
        while self.open:
            self._answer_one(*self.open.pop(0))

    def _answer_one(self, request: Any, computed: EngineFuture, output: EngineFuture) -> None:
        output.origin = computed.origin = Origin(1, STAMPS)
        try:
            value = self._answer(request)
        except Exception as error:  # noqa: BLE001  the request's
            computed.set_exception(error)
            output.set_exception(error)
        else:
            computed.set_result(None)
            output.set_result(value)

    def die(self, error: BaseException) -> None:
        """End as an executor does whose worker dies."""
        self.failure = error
        while self.open:
            _, computed, output = self.open.pop(0)
            computed.set_exception(error)
            output.set_exception(error)

    def shutdown(self, timeout: float = 30.0) -> None:
        self.shutdowns.append(timeout)
        self.die(ExecutorClosedError("the executor was shut down before this was done"))

    # What a future asks of its executor -----------------------------------------

    def check_process(self) -> None:
        return

    def timeout_error(self, output_id: str, waited: float, setting: bool) -> Exception:
        raise AssertionError("nobody waits here")

    def give_up(self, any_id: str) -> None:
        self.given_up.append(any_id)
