"""The background thread of an executor, and the callers that do its work for it.

Outputs are resolved in the order of their submission. Who resolves them:

- the background thread, which waits for the copies of large outputs and runs
  every `on_host` and callback;
- a caller of `result()` or `done()`, when nothing before its output needs that thread;
- `submit`, once a few small outputs have gathered.

Small outputs that nobody waits for rest some milliseconds before the thread
looks: woken once an output, it would cost the submitting thread more, through
the interpreter's lock, than the copies themselves. It sleeps, without polling,
when nothing is in flight.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time

import torch

from omni_platforms.errors import (
    DrainTimeoutError,
    ExecutorClosedError,
)
from omni_platforms.outputs.asking import Asker
from omni_platforms.outputs.bounds import Bounds
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.outputs.issue import Issuer
from omni_platforms.outputs.pending import PendingOutput
from omni_platforms.outputs.resolver import LINGER_S
from omni_platforms.outputs.stats import Counters
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.waiting import spare_others, use_exact_pauses

logger = logging.getLogger(__name__)

TIDY_AT = 32
"""At every multiple of so many outputs in flight, `submit` resolves what has arrived."""


class Waiter(Asker):
    """A resolver with a background thread, and the ways to wait for it.

    All methods may be called from any thread unless they say otherwise.
    """

    def __init__(
        self,
        platform: OmniPlatform,
        device: torch.device,
        issuer: Issuer,
        bounds: Bounds,
        gate: CaptureGate,
        counters: Counters,
    ) -> None:
        super().__init__(platform, device, issuer, bounds, gate, counters)
        self._asleep = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.cause: BaseException | None = None

    def enqueue(self, pending: PendingOutput) -> None:
        """Take over an output whose copies are enqueued. Does not block."""
        if self._thread is None:
            self._start()
        self._queue.append(pending)
        self._release_behind_packing()
        if not pending.lingers or self._asleep:
            self._bell.put(None)
        elif not len(self._queue) % TIDY_AT:
            self._tidy()
        if self.cause is not None:  # the thread died while this output was being submitted
            self._fail_pending(self.cause)

    # The thread ---------------------------------------------------------------

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"omni-outputs-{self._device}", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        """Resolve outputs until closed. A fault of the thread itself ends the executor."""
        try:
            self._platform.set_device(self._device)
            use_exact_pauses()
            spare_others()  # the submitting thread launches work
            while (head := self._next_head()) is not None:
                self._counters.add("wakeups")
                hurried = self._linger(head)
                self._await_device(head)
                del head  # an idle thread must not keep the last output alive
                with self._turn:
                    self._advance(own_thread=True, young=hurried)
        except BaseException as error:  # reported to every caller, and raised again here
            self.cause = error
            self.closing = True
            self._fail_pending(error)
            raise

    def _next_head(self) -> PendingOutput | None:
        """Return the oldest output; sleep while there is none; `None` when closed."""
        lingered = False
        while True:
            try:
                return self._queue[0]
            except IndexError:
                if self.closing:
                    return None
            if lingered:
                self._fall_asleep()
            else:
                self._rest(LINGER_S)
            lingered = not lingered

    def _linger(self, head: PendingOutput) -> bool:
        """Leave small outputs to other threads for a while; return whether somebody hurries."""
        while head.lingers and not self.closing:
            left = head.submitted + LINGER_S - time.perf_counter()
            if left <= 0:
                return False
            if self._rest(left):
                break
        return True

    def _rest(self, timeout: float | None) -> bool:
        """Rest until the bell rings, at most `timeout` seconds; return whether it rang."""
        try:
            self._bell.get(timeout=timeout)
        except queue.Empty:
            return False
        try:
            while True:
                self._bell.get_nowait()
        except queue.Empty:
            return True

    def _fall_asleep(self) -> None:
        """Rest until an output comes, or the end."""
        self._asleep = True
        try:
            # An output that came before `_asleep` was set did not ring.
            if not (self._queue or self.closing):
                self._rest(None)
        finally:
            self._asleep = False

    # Draining and closing -----------------------------------------------------

    def drain(self, timeout: float) -> None:
        """Block until every output submitted so far is resolved, at most `timeout` seconds.

        From inside an `on_host` or a callback it waits for the copies only.
        Raises `DrainTimeoutError`, and then nothing of what is in flight may be freed.
        """
        self.check_process()
        deadline = time.perf_counter() + timeout
        waiting = self._in_flight()
        for pending in waiting:
            self._hurry(pending)
        if self.resolving_here():
            drained = all(self._await_copy(pending, deadline) for pending in waiting)
        else:
            drained = self._await_finished(waiting, deadline)
        if not drained:
            raise self._drain_error(waiting, timeout)

    def _await_copy(self, pending: PendingOutput, deadline: float) -> bool:
        return self._await_device(pending, max(0.0, deadline - time.perf_counter()))

    def _await_finished(self, waiting: list[PendingOutput], deadline: float) -> bool:
        with self._finished:
            self._draining += 1
            try:
                return self._finished.wait_for(
                    lambda: all(pending.finished for pending in waiting),
                    timeout=max(0.0, deadline - time.perf_counter()),
                )
            finally:
                self._draining -= 1

    def _drain_error(self, waiting: list[PendingOutput], timeout: float) -> DrainTimeoutError:
        left = [pending for pending in waiting if not pending.finished]
        lines = [str(pending.describe(pending is left[0])) for pending in left[:8]]
        return DrainTimeoutError(
            f"{len(left)} outputs were still in flight after {timeout} s: {'; '.join(lines)}. "
            "Their device memory must not be released; drain again with a longer timeout."
        )

    def stop(self) -> None:
        """Let the thread end once nothing is in flight. Safe inside the garbage collector."""
        self.closing = True
        self._bell.put(None)

    def close(self, timeout: float) -> None:
        """Resolve what is in flight within `timeout` seconds, fail the rest, end the thread."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._bounds.wake()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(timeout)
        if thread.is_alive():
            self._fail_pending(None)

    def _fail_pending(self, cause: BaseException | None) -> None:
        """Fail the futures of all outputs in flight; their memory stays till the device is done."""
        self._bounds.wake()
        left = self._in_flight()
        if left:
            logger.error("executor on %s ended with %d outputs in flight", self._device, len(left))
        for at, pending in enumerate(left):
            error = ExecutorClosedError(
                f"the executor was closed before this output arrived: {pending.describe(at == 0)}"
            )
            error.__cause__ = cause
            self._settle(pending, None, error)
