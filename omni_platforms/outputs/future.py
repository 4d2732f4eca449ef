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

Outcome = tuple[Any, BaseException | None]

_CANCELLED: Outcome = (None, concurrent.futures.CancelledError())
_ARRIVED: Outcome = ("on the host, and to be made when somebody asks", None)


class OutputFuture(concurrent.futures.Future[Any]):
    """The future of one output: a `concurrent.futures.Future` that can be awaited.

    All methods may be called from any thread. `result` and `exception` wait
    for the device themselves when nothing stands before this output, so the
    background thread is not needed for them. Callbacks run on the background
    thread, or on the thread that settles the output. `cancel` gives up the
    result, not the copy: memory is freed when the device has finished with it.

    The base class is initialized when something first needs it: its condition
    and lists cost as much as starting a small copy, and most futures are only
    asked for their result.
    """

    # Most futures keep these. Who enters an outcome first, under the executor's lock for
    # futures, decides between a result, an error and a cancellation. No future's
    # `__dict__` is asked for: making it costs as much as the future.
    _outcome: Outcome | None = None
    _at_once = False
    _claimed = False
    _base_ready = False
    _base_told = False

    def __init__(self, waiter: Waiter, pending: PendingOutput) -> None:
        self._waiter: Waiter | None = waiter
        self._pending = pending

    # For the executor ---------------------------------------------------------

    def claim(self) -> bool:
        """Begin to make the result, which rules out cancellation; false if it is too late."""
        with self._pending.lock:
            if self._claimed or self._outcome is not None:
                return False
            self._claimed = True
            if self._base_ready:
                self.set_running_or_notify_cancel()
            return True

    def settle(self, value: Any, error: BaseException | None) -> bool:
        """Enter the outcome; return false when there is one already."""
        return self._enter((value, error))

    def arrive(self) -> bool:
        """Settle with a value that is on the host, and is made when somebody asks for it."""
        return self._enter(_ARRIVED)

    def settle_now(self, value: Any, error: BaseException | None) -> None:
        """Enter the outcome inside `submit`; whether anybody asks is still to be noted."""
        self._outcome = (value, error)
        self._at_once = True

    def _enter(self, outcome: Outcome) -> bool:
        pending = self._pending
        with pending.lock:
            found = self._outcome
            if found is None:
                self._outcome = outcome
        self._waiter = None
        if found is not None:
            if found is _CANCELLED:
                pending.forget()
                self._tell_base(found)
            return False
        if self._base_ready:
            self._tell_base(outcome)
        return True

    def _made(self) -> Outcome:
        """Return the outcome, with its value; what came with a batch is made now."""
        with self._pending.lock:  # several threads may ask, and a nest is rebuilt once
            outcome = self._outcome
            if outcome is _ARRIVED:
                outcome = self._outcome = self._make()
        assert outcome is not None
        return outcome

    def _make(self) -> Outcome:
        pending = self._pending
        outcome: Outcome
        try:
            outcome = pending.make(), None
        except Exception as error:  # noqa: BLE001  it fails this one output
            outcome = None, error
        pending.forget()  # not when interrupted: it can be made later
        return outcome

    def is_settled(self) -> bool:
        """Whether the output is settled or cancelled, without a look at the device."""
        return self._outcome is not None

    # For users ----------------------------------------------------------------

    @property
    def timeline(self) -> OutputTimeline | None:
        """When the output reached each stage; `None` until it is resolved."""
        outcome = self._outcome
        return None if outcome is None or outcome is _CANCELLED else self._pending.timeline()

    def done(self) -> bool:
        """Whether the output is settled; one that the device has written is settled at once."""
        waiter = self._waiter
        if self._at_once:
            self._note()
        elif waiter is not None:
            waiter.look(self._pending)
        return self._outcome is not None

    def running(self) -> bool:
        """Whether its `on_host` has begun and not ended."""
        return self._claimed and self._outcome is None

    def cancelled(self) -> bool:
        """Whether the result was given up."""
        return self._outcome is _CANCELLED

    def result(self, timeout: float | None = None) -> Any:
        """Block until the output is on the host and return it.

        Waits at most `timeout` seconds, for ever when `None`. Raises
        `OutputTimeoutError` (the output stays in flight), `CancelledError`, the
        error of the output, or `ExecutorForkedError` in a forked child.
        """
        waiter = self._waiter
        if self._at_once:
            self._note()
        elif waiter is not None and self._outcome is None:
            timeout = waiter.wait_for(self._pending, timeout)
        outcome = self._outcome
        if outcome is _ARRIVED:
            outcome = self._made()
        if outcome is not None and outcome[1] is None:
            return outcome[0]
        self._initialize_base()
        try:
            return super().result(timeout)
        except concurrent.futures.TimeoutError as error:
            self._explain(error)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Block until the output is settled and return its error, or `None`.

        Waits and raises as `result` does, except for the error of the output.
        """
        waiter = self._waiter
        if self._at_once:
            self._note()
        elif waiter is not None and self._outcome is None:
            timeout = waiter.wait_for(self._pending, timeout)
        self._initialize_base()
        try:
            return super().exception(timeout)
        except concurrent.futures.TimeoutError as error:
            self._explain(error)
            raise

    def cancel(self) -> bool:
        """Give up the result; return false when it is there, or being made."""
        self._initialize_base()
        with self._pending.lock:
            waiter, first = self._waiter, self._outcome is None
            if self._claimed or not (first or self._outcome is _CANCELLED):
                return False
            self._outcome = _CANCELLED
        if first and waiter is not None:
            waiter.count_cancelled()
        return super().cancel()

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """Call `fn(self)` once the output is settled, at once if it is already."""
        self._initialize_base()
        self._listen()
        super().add_done_callback(fn)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a running asyncio loop; cancelling the task cancels this future."""
        return asyncio.wrap_future(self).__await__()

    # The base class -----------------------------------------------------------

    if not TYPE_CHECKING:  # a type checker is to find misspelled names

        def __getattr__(self, name: str) -> Any:
            """Initialize the base class when one of its attributes is missing.

            `concurrent.futures.wait` and `as_completed` use them directly: they listen.
            """
            if self._base_ready:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._initialize_base()
            self._listen()
            return getattr(self, name)

    def _initialize_base(self) -> None:
        with self._pending.lock:
            if self._base_ready:
                return
            super().__init__()
            if self._claimed:
                self.set_running_or_notify_cancel()
            self._base_ready = True
        outcome = self._outcome
        if outcome is not None and outcome is not _CANCELLED:
            self._tell_base(outcome)

    def _tell_base(self, outcome: Outcome) -> None:
        """Give the base class the outcome, once: two threads may come to it."""
        with self._pending.lock:
            if self._base_told:
                return
            self._base_told = True
        value, error = self._made() if outcome is _ARRIVED else outcome
        if outcome is _CANCELLED:
            super().cancel()  # `cancel` may not have come this far
            self.set_running_or_notify_cancel()
        elif error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def _note(self) -> None:
        """Say that somebody asks for an output that was settled at once."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.was_asked(self._pending)

    def _listen(self) -> None:
        waiter = self._waiter
        if self._at_once:
            self._note()
        elif waiter is not None:
            waiter.watch(self._pending)

    def _explain(self, error: BaseException) -> None:
        """Raise a timeout that says what the output waits for, unless it is the output's own."""
        waiter = self._waiter
        if waiter is not None and self._outcome is None:
            raise waiter.timeout_error(self._pending) from error
