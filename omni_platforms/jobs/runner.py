"""`Runner`: keeps the workers supplied, has outputs saved, and hands on what ended.

One loop on the calling thread takes events from a queue: an output is here, a request is
saved, stop. Callbacks of futures and signal handlers only put events there. It never
holds an output itself: the thread that saves it takes it out of its future.
"""

from __future__ import annotations

import enum
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from omni_platforms.engine import EngineFuture
from omni_platforms.errors import (
    ExecutorClosedError,
    OutputDroppedError,
    OutputTimeoutError,
    WorkerStoppedError,
    WorkerSurvivedError,
)
from omni_platforms.jobs.records import Ended, now, spans_of
from omni_platforms.jobs.requests import Request

Save = Callable[[str, Any], tuple[Any, list[str]]]
_LOOKS = 4  # for outputs that are overdue, in the time that one may take
_NOT_ITS_FAULT = (ExecutorClosedError, WorkerStoppedError, OutputDroppedError)


class Executor(Protocol):
    """What a runner asks of `MultiprocExecutor`."""

    @property
    def failure(self) -> BaseException | None:
        """What ended it."""

    def submit(self, request: Any) -> EngineFuture:
        """Queue one request; return the future of its COMPUTE_DONE."""

    def wait_output_ready(self, async_output_id: str) -> EngineFuture:
        """Return the future of its output."""

    def shutdown(self, timeout: float = 30.0) -> None:
        """Deliver what was submitted, at most so many seconds; fail the rest."""


@dataclass(eq=False)
class _Running:
    """A request that was submitted."""

    request: Request
    submitted: float
    computed: EngineFuture
    output: EngineFuture
    computed_at: float = math.inf
    overdue: OutputTimeoutError | None = None


class _Stop(enum.Enum):
    STOP = enum.auto()


class Runner:
    """Runs requests. `save(id, output)` is called on threads of its own, the other two on `run`'s.

    At most `in_flight` requests are submitted and not saved. An output may take `output_timeout`
    seconds from the end of its forward; a stop gives what is at the workers `grace` seconds.
    `device_events` says whether events tell when the device has computed an output.
    """

    def __init__(
        self,
        executor: Executor,
        save: Save,
        on_end: Callable[[Ended], None],
        on_stop: Callable[[], None],
        *,
        in_flight: int,
        savers: int,
        grace: float,
        output_timeout: float,
        device_events: bool,
    ) -> None:
        self._executor = executor
        self._save = save
        self._on_end = on_end
        self._on_stop = on_stop
        self._in_flight = in_flight
        self._grace = grace
        self._output_timeout = output_timeout
        self._device_events = device_events
        self._events: queue.SimpleQueue[_Running | Future[Ended] | _Stop] = queue.SimpleQueue()
        self._running: set[_Running] = set()
        self._saving: dict[Future[Ended], _Running] = {}
        self._savers = ThreadPoolExecutor(savers, "omni-save")
        self.stopping = False
        self.unfinished: list[Request] = []
        """Requests that were at a worker when the run ended, and have no result."""
        self.trouble: WorkerSurvivedError | None = None
        """A worker that a stop could not end."""

    def stop(self) -> None:
        """Submit nothing more; what is at the workers gets `grace` seconds. For handlers, too."""
        self._events.put(_Stop.STOP)

    def run(self, requests: Iterable[Request]) -> None:
        """Run all requests, or until a stop or the executor's end. Raises what `on_end` raises."""
        waiting = iter(requests)
        try:
            self._fill(waiting)
            while self._running:
                self._handle_next()
                self._fill(waiting)
        finally:
            self._savers.shutdown()

    def _fill(self, waiting: Iterator[Request]) -> None:
        while not self.stopping and len(self._running) < self._in_flight:
            request = next(waiting, None)
            if request is None:
                return
            self._submit(request)

    def _submit(self, request: Request) -> None:
        submitted = now()
        try:
            computed = self._executor.submit(request.value)
            output = self._executor.wait_output_ready(computed.async_output_id)
        except ExecutorClosedError:
            self.stopping = True
            return
        running = _Running(request, submitted, computed, output)
        self._running.add(running)
        computed.add_done_callback(lambda _: _note_computed(running))
        output.add_done_callback(lambda _: self._events.put(running))

    def _handle_next(self) -> None:
        try:
            self._handle(self._events.get(timeout=self._output_timeout / _LOOKS))
        except queue.Empty:
            self._give_up_overdue()

    def _give_up_overdue(self) -> None:
        """Fail requests whose outputs did not come although their forwards ended long ago."""
        since = now() - self._output_timeout
        for running in self._running.difference(self._saving.values()):
            if running.computed_at < since and not running.output.done():
                running.overdue = OutputTimeoutError(
                    f"its output did not come within {self._output_timeout} s of its forward; "
                    "set OMNI_ASYNC_OUTPUT_TIMEOUT to a larger number of seconds to wait longer"
                )
                running.output.cancel()  # which is an event

    def _handle(self, event: _Running | Future[Ended] | _Stop) -> None:
        if isinstance(event, _Stop):
            self._begin_to_stop()
        elif isinstance(event, _Running):
            self._output_is_here(event)
        else:
            self._running.discard(self._saving.pop(event))
            self._on_end(event.result())

    def _begin_to_stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            self._on_stop()
            try:
                self._executor.shutdown(self._grace)
            except WorkerSurvivedError as error:
                self.trouble = error

    def _output_is_here(self, running: _Running) -> None:
        error = _error_of(running)
        if error is not None and self._is_executors(error):
            self.stopping = True
            self._running.discard(running)
            self.unfinished.append(running.request)
            return
        saving = self._savers.submit(self._end, running, now())
        self._saving[saving] = running
        saving.add_done_callback(self._events.put)

    def _is_executors(self, error: BaseException) -> bool:
        """Whether a request has no result because the executor ended, or was stopped."""
        failure = self._executor.failure
        if failure is None:
            return self.stopping and isinstance(error, _NOT_ITS_FAULT)
        same = (type(error), str(error)) == (type(failure), str(failure))
        return same or isinstance(error, _NOT_ITS_FAULT)

    def _end(self, running: _Running, arrived: float) -> Ended:
        """Save an output, on a thread of the pool. Raises nothing: an error is the request's."""
        ended = Ended(running.request, running.submitted)
        ended.worker, ended.spans = spans_of(
            running.submitted,
            running.computed,
            running.output,
            arrived,
            device_events=self._device_events,
        )
        ended.error = _error_of(running)
        if ended.error is None:
            self._save_output(running, ended)
        else:
            ended.stage = "copy" if running.computed.exception(0) is None else "forward"
        ended.finished = now()
        return ended

    def _save_output(self, running: _Running, ended: Ended) -> None:
        begun = now()
        try:
            output = running.output.result(0)
            running.output = running.computed  # the output goes as soon as it is saved
            ended.output, ended.files = self._save(running.request.id, output)
        except Exception as error:  # noqa: BLE001  it is this request's, whatever it is
            ended.error, ended.stage = error.with_traceback(None), "save"
        ended.spans["save"] = (begun, now())
        ended.saver = _thread_number()


def _note_computed(running: _Running) -> None:
    running.computed_at = now()


def _error_of(running: _Running) -> BaseException | None:
    return running.output.exception(0) if running.overdue is None else running.overdue


def _thread_number() -> int:
    return int(threading.current_thread().name.rpartition("_")[2])
