"""What callers may do about an output in flight: wait for it, look at it, listen for it.

Waiting and looking resolve it on the calling thread where nothing before it
needs the background thread.
"""

from __future__ import annotations

import os
import queue
import time
from typing import Any

import torch

from omni_platforms.errors import CaptureError, ExecutorForkedError, OutputTimeoutError
from omni_platforms.outputs.bounds import Bounds
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.outputs.future import Outcome
from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.outputs.issue import Issuer
from omni_platforms.outputs.pending import PendingOutput
from omni_platforms.outputs.resolver import Resolver
from omni_platforms.outputs.stats import Counters
from omni_platforms.platform.interface import OmniPlatform


class Asker(Resolver):
    """A resolver that callers can ask. All methods may be called from any thread."""

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
        self._issuer = issuer
        self._direct = issuer.direct
        self.at_once = 0  # changed by whoever has the turn
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # put is reentrant
        self._pid = os.getpid()
        self.closing = False

    # Without waiting ----------------------------------------------------------

    def watch(self, pending: PendingOutput) -> None:
        """Resolve this output promptly and on the background thread: somebody listens."""
        pending.needs_thread = True
        self._habit.disturb()
        self._hurry(pending)

    def look(self, pending: PendingOutput) -> None:
        """Settle `pending` if the device has written it and the thread may. Does not block."""
        if pending.needs_thread:
            return
        self._habit.disturb()
        if pending.batch is not None and self._gate.try_begin():
            try:
                self._batches.close(pending.batch)
            finally:
                self._gate.end()
        self._tidy()

    def _tidy(self) -> None:
        """Resolve what the device has written, if nobody else is at it. Does not block."""
        if self._turn.acquire(blocking=False):
            try:
                if not self.resolving_here():
                    self._advance(wait=False)
            finally:
                self._turn.release()

    def hurry_all(self) -> None:
        """Resolve everything in flight promptly: somebody waits for room."""
        for pending in self._in_flight():
            pending.lingers = False
        self._bell.put(None)

    def _hurry(self, pending: PendingOutput) -> None:
        pending.lingers = False
        self._bell.put(None)

    # At once ------------------------------------------------------------------

    def settle_now(self, pending: PendingOutput, leaves: list[Any]) -> bool:
        """Copy and settle an output on the calling thread; return false where that is no good.

        Only where nothing else is in flight: results arrive in order. An error of
        a copy is the output's.
        """
        future = pending.future
        if self._queue or future is None or not self._turn.acquire(blocking=False):
            return False
        outcome: Outcome
        try:
            if self._queue or self.resolving_here():
                return False
            try:
                with self._gate:
                    values = self._direct.copies(pending.number, leaves)
                if values is None:
                    return False
                assert pending.rebuild is not None
                outcome = pending.rebuild(values), None
                self.resolved += 1
                self.at_once += 1
                self.bytes_copied += pending.nbytes
            except CaptureError:
                raise
            except Exception as error:  # noqa: BLE001  it fails this one output
                outcome = None, error
                self.at_once += 1
                self._counters.add("failed")
        finally:
            self._turn.release()
        pending.copied = pending.resolved = time.perf_counter()
        pending.finished = True
        pending.rebuild = pending.future = None
        self._habit.may_wait(pending.number)
        future.settle_now(*outcome)
        return True

    def was_asked(self, pending: PendingOutput) -> None:
        """Note that somebody asked for an output that was settled at once."""
        self._habit.asked(pending.number)
        self._direct.asked(pending.number)

    # Waiting for one output ---------------------------------------------------

    def check_process(self) -> None:
        """Raise `ExecutorForkedError` in a forked child, where the thread does not exist."""
        if os.getpid() != self._pid:
            raise ExecutorForkedError(
                f"this executor belongs to process {self._pid}, not to its forked child "
                f"{os.getpid()}: make an executor in the child (and start children with spawn "
                "if they use the device)"
            )

    def wait_for(self, pending: PendingOutput, timeout: float | None) -> float | None:
        """Bring `pending` to its result from the calling thread where that is possible.

        Blocks at most `timeout` seconds and returns what is left of them; the
        caller then waits on the future for whatever remains to be done.
        """
        if self.closing:
            self.check_process()
        self.was_asked(pending)
        start = 0.0 if timeout is None else time.perf_counter()
        if not pending.needs_thread:
            if timeout is None and pending.batch is not None and self._copy_here(pending):
                return None
            if self._await_device(pending, timeout):
                self._resolve_here(pending)
        if pending.future is not None:
            self._hurry(pending)
        return None if timeout is None else max(0.0, timeout - (time.perf_counter() - start))

    def _copy_here(self, pending: PendingOutput) -> bool:
        """Copy an output without company with a blocking call; return whether it is resolved."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            head = self._queue[0] if self._queue else None
            if head is not pending or not self._withdraw_and_copy(pending):
                return False
            self._advance(until=pending)
            return True
        finally:
            self._turn.release()

    def _withdraw_and_copy(self, pending: PendingOutput) -> bool:
        with self._gate:
            if not self._batches.withdraw(pending):
                return False
            try:
                with own_tensors():
                    pending.values = [leaf.to("cpu") for leaf in pending.sources]
            except Exception as error:  # noqa: BLE001  it fails this one output
                pending.error = error
            except BaseException:  # interrupted: it stays in flight
                self._issuer.issue_small(pending, pending.sources, here=True)
                raise
        return True

    def _resolve_here(self, pending: PendingOutput) -> None:
        """Resolve everything up to `pending`, unless another thread is at it."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._advance(until=pending)
        finally:
            self._turn.release()

    def timeout_error(self, pending: PendingOutput) -> OutputTimeoutError:
        """Return an error that says what `pending` waits for."""
        waiting = self._in_flight()
        at_head = bool(waiting) and waiting[0] is pending
        lines = [f"timed out: {pending.describe(at_head)}"]
        if waiting and not at_head:
            lines.append(f"before it, {waiting[0].describe(True)}")
        lines.append("it stays in flight: call result() again, or cancel()")
        return OutputTimeoutError("; ".join(lines))
