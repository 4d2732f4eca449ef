"""`EngineFuture`: what `submit` and `wait_output_ready` return, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
from collections.abc import Generator
from typing import Any, Protocol

from omni_platforms.engine.ledger_records import Effects, Future, Origin, Outcome
from omni_platforms.engine.previews import Previews

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """What a future asks of its executor."""

    def check_may_wait(self) -> None:
        """Raise where nothing would ever arrive: in a forked child, or on a pump's thread."""

    def timeout_error(self, output_id: str, waited: float, setting: bool) -> Exception:
        """Return the error that says what an output waits for."""

    def give_up(self, any_id: str) -> None:
        """Drop an output, or a request, whose future was cancelled."""


class EngineFuture(concurrent.futures.Future[Any]):
    """The promise of a COMPUTE_DONE (from `submit`) or of one output (`wait_output_ready`).

    A `concurrent.futures.Future` that can be awaited. Cancelling it drops the
    output; everybody who waits for the same output has the same future. Callbacks run on
    the thread that receives the worker's messages: they must be short.
    """

    def __init__(self, output_id: str, owner: Owner, timeout: float | None = None) -> None:
        super().__init__()
        self.async_output_id = output_id
        """The id of the output, known before it is computed."""
        self.previews: Previews | None = None
        """The previews of a stepwise request that asked for them."""
        self.origin: Origin | None = None
        """Once it is done: which worker it came from, and when it was in which phase there; `None`
        for what no worker has answered."""
        self._owner = owner
        self._timeout = timeout
        self._cancellations = itertools.count()

    def result(self, timeout: float | None = None) -> Any:
        """Block until it is here and return it.

        Waits at most `timeout` seconds; when `None`, an output at most
        `OMNI_ASYNC_OUTPUT_TIMEOUT` and a COMPUTE_DONE for as long as the worker lives. Raises
        `OutputTimeoutError` (it is still on its way then, and may be asked for again),
        `CancelledError`, the error of the request with the worker's traceback as its
        cause, what ended the executor, `WaitInCallbackError` in a callback, or
        `ExecutorForkedError` in a forked child.
        """
        limit = self._limit(timeout)
        try:
            return super().result(limit)
        except concurrent.futures.TimeoutError:
            if self.done():
                raise  # it is the request's own error, or it came this moment
            raise self._explained(limit, timeout) from None
        finally:
            del self  # the error's traceback has this frame: it would be a cycle

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Block until it is here and return its error, or `None`. Waits and raises as `result`."""
        limit = self._limit(timeout)
        try:
            return super().exception(limit)
        except concurrent.futures.TimeoutError:
            if self.done():
                raise
            raise self._explained(limit, timeout) from None

    def cancel(self) -> bool:
        """Drop the output; return false when it is here already. Does not block."""
        if not super().cancel():
            return False
        if next(self._cancellations) == 0:
            self.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
            self._owner.give_up(self.async_output_id)
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a running asyncio loop, as `result()` does; cancelling the task cancels it."""
        return self._wait().__await__()

    async def _wait(self) -> Any:
        limit = self._limit(None)
        wrapped = asyncio.wrap_future(self)
        try:
            await asyncio.wait({wrapped}, timeout=limit)
        except asyncio.CancelledError:
            if not self.cancel():  # done this moment: what was computed for it is dropped, too
                self._owner.give_up(self.async_output_id)
            raise
        try:
            if not wrapped.done():
                wrapped.add_done_callback(_retrieve)
                raise await asyncio.to_thread(self._explained, limit, None)
            return wrapped.result()
        finally:
            del self, wrapped  # as in `result`

    def _limit(self, timeout: float | None) -> float | None:
        if not self.done():
            self._owner.check_may_wait()
        return self._timeout if timeout is None else timeout

    def _explained(self, limit: float | None, asked: float | None) -> Exception:
        return self._owner.timeout_error(self.async_output_id, limit or 0.0, asked is None)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take the error of a future that nobody awaits any more, so that asyncio does not warn."""
    if not future.cancelled():
        future.exception()


def carry_out(effects: Effects) -> None:
    """Settle futures, and let values go. Runs callbacks: hold no lock."""
    for future, outcome in effects.settle:
        settle(future, outcome)
    effects.settle.clear()
    effects.release.clear()


def settle(future: Future, outcome: Outcome) -> None:
    """Settle one future, unless it is cancelled: between a look and a call it could be."""
    if isinstance(future, EngineFuture):
        future.origin = outcome.origin
    try:
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if outcome.error is None:
                future.set_result(outcome.value)
            else:
                future.set_exception(outcome.error)
    except SystemExit:
        logger.exception("a callback of a future called sys.exit(), which ends no process here")
