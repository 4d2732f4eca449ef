"""`OutputFuture`: the promise of one output, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from omni_platforms.outputs.pending import OutputTimeline

if TYPE_CHECKING:
    from omni_platforms.outputs.pending import PendingOutput
    from omni_platforms.outputs.waiter import Waiter


class OutputFuture(concurrent.futures.Future[Any]):
    """The future of one output: a `concurrent.futures.Future` that can be awaited.

    All methods may be called from any thread. `result` and `exception` wait
    for the device themselves when nothing stands before this output, so the
    background thread is not needed for them. Callbacks run on the background
    thread, or on the thread that settles the output. `cancel` gives up the
    result, not the copy: memory is freed when the device has finished with it.
    """

    _waiter: Waiter | None = None
    _pending: PendingOutput | None = None
    _timeline: OutputTimeline | None = None

    def attach(self, waiter: Waiter, pending: PendingOutput) -> None:
        """Tie the future to its output; called once, by the executor."""
        self._waiter, self._pending = waiter, pending

    def finish(self, timeline: OutputTimeline, value: Any, error: BaseException | None) -> None:
        """Settle the future; called once, by the executor."""
        self._timeline = timeline
        self._waiter = self._pending = None
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    @property
    def _waiters(self) -> list[Any]:
        """Where `concurrent.futures.wait` and `as_completed` enlist: somebody listens now."""
        waiter, pending = self._waiter, self._pending
        if waiter is not None and pending is not None:
            waiter.watch(pending)
        return self._enlisted

    @_waiters.setter
    def _waiters(self, enlisted: list[Any]) -> None:
        self._enlisted = enlisted

    def done(self) -> bool:
        """Whether the output is settled; one that the device has written is settled at once."""
        waiter, pending = self._waiter, self._pending
        if waiter is not None and pending is not None:
            waiter.look(pending)
        return self.settled()

    def settled(self) -> bool:
        """Whether the output is settled, without a look at the device."""
        return super().done()

    @property
    def timeline(self) -> OutputTimeline | None:
        """When the output reached each stage; `None` until it is resolved."""
        return self._timeline

    def result(self, timeout: float | None = None) -> Any:
        """Block until the output is on the host and return it.

        Waits at most `timeout` seconds, for ever when `None`. Raises
        `OutputTimeoutError` (the output stays in flight), `CancelledError`, the
        error of the output, or `ExecutorForkedError` in a forked child.
        """
        timeout = self._wait(timeout)
        try:
            return super().result(timeout)
        except concurrent.futures.TimeoutError as error:
            self._explain(error)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Block until the output is settled and return its error, or `None`.

        Waits and raises as `result` does, except for the error of the output.
        """
        timeout = self._wait(timeout)
        try:
            return super().exception(timeout)
        except concurrent.futures.TimeoutError as error:
            self._explain(error)
            raise

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """Call `fn(self)` once the output is settled, at once if it is already."""
        waiter, pending = self._waiter, self._pending
        if waiter is not None and pending is not None:
            waiter.watch(pending)
        super().add_done_callback(fn)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a running asyncio loop; cancelling the task cancels this future."""
        return asyncio.wrap_future(self).__await__()

    def _wait(self, timeout: float | None) -> float | None:
        """Help the output along; return what is left of `timeout`."""
        waiter, pending = self._waiter, self._pending
        if waiter is None or pending is None:
            return timeout
        return waiter.wait_for(pending, timeout)

    def _explain(self, error: BaseException) -> None:
        """Raise a timeout that says what the output waits for, unless it is the output's own."""
        waiter, pending = self._waiter, self._pending
        if waiter is not None and pending is not None and not self.settled():
            raise waiter.timeout_error(pending) from error
