"""Resolving outputs: from "the device has written it" to a settled future, in order.

Whoever has the turn resolves what stands at the head of the queue: the
background thread, or a caller of `result()`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.errors import CaptureError
from omni_platforms.outputs.bounds import Bounds
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.outputs.issue import Issuer
from omni_platforms.outputs.pending import PendingDescription, PendingOutput
from omni_platforms.outputs.stats import Counters
from omni_platforms.platform.interface import OmniPlatform

logger = logging.getLogger(__name__)

LINGER_S = 20e-3
"""How long the background thread leaves small outputs to other threads, in seconds."""


class Resolver:
    """The queue of outputs in flight, and the steps that take one out of it.

    Any thread may call any method; `_advance` needs the turn.
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
        self._platform = platform
        self._device = device
        self._small = issuer.small
        self._batches = issuer.batches
        self._habit = issuer.habit
        self._bounds = bounds
        self._gate = gate
        self._counters = counters
        self._queue: deque[PendingOutput] = deque()
        self._current: PendingOutput | None = None  # popped, not yet finished
        self._turn = threading.RLock()  # held by whoever resolves outputs
        self._resolver: int | None = None  # that thread's identity
        self.futures_lock = threading.RLock()  # held for moments, by futures
        self.resolved = 0  # with the next, changed by whoever has the turn
        self.bytes_copied = 0
        self._finished = threading.Condition(threading.Lock())
        self._draining = 0  # how many threads wait for `_finished`

    def resolving_here(self) -> bool:
        """Whether the calling thread is resolving an output now (an `on_host`, a callback)."""
        return self._resolver == threading.get_ident()

    def count_cancelled(self) -> None:
        """Note that a result was given up; its copy goes on."""
        self._counters.add("cancelled")

    def _in_flight(self) -> list[PendingOutput]:
        waiting = list(self._queue.copy())
        current = self._current
        return waiting if current is None or current.finished else [current, *waiting]

    def describe(self) -> list[PendingDescription]:
        """Describe every output in flight, oldest first."""
        return [pending.describe(at == 0) for at, pending in enumerate(self._in_flight())]

    def oldest_age(self) -> float:
        """Return the age of the oldest output in flight in seconds, or 0."""
        oldest = self._in_flight()[:1]
        return time.perf_counter() - oldest[0].submitted if oldest else 0.0

    def phases(self, most: int) -> dict[str, int]:
        """Count the oldest `most` outputs in flight by phase. Asks the device."""
        oldest = self._in_flight()[:most]
        return dict(Counter(pending.phase(at == 0).value for at, pending in enumerate(oldest)))

    def _await_device(self, pending: PendingOutput, timeout: float | None = None) -> bool:
        """Block until the device has written `pending`, or until `timeout` seconds passed.

        Returns whether it has. A failing wait becomes the output's error.
        """
        try:
            with self._gate:
                if pending.batch is not None:
                    self._batches.close(pending.batch)
                if pending.gate is not None and not pending.lingers:
                    start = time.perf_counter()
                    if not self._platform.synchronize_event(pending.gate, timeout):
                        return False
                    pending.ready = pending.ready or time.perf_counter()
                    if timeout is not None:
                        timeout = max(0.0, timeout - (pending.ready - start))
                done = pending.done
                return done is None or self._platform.synchronize_event(done, timeout)
        except CaptureError:
            raise
        except Exception as error:  # noqa: BLE001  it belongs to this one output
            self._wait_failed(pending, error)
            return True

    def _wait_failed(self, pending: PendingOutput, error: Exception) -> None:
        """Fail an output whose event cannot be waited for, after waiting for its whole device.

        Its copy may still be in flight, and its memory must not be let go before.
        """
        pending.error = pending.error or error
        try:
            self._platform.synchronize(self._device)
        except Exception as lost:  # noqa: BLE001  nothing on this device can be waited for any more
            logger.error("waiting for %s failed too: %s", self._device, lost)

    def _advance(
        self,
        until: PendingOutput | None = None,
        own_thread: bool = False,
        wait: bool = True,
        young: bool = True,
    ) -> None:
        """Resolve the outputs at the head of the queue that the device has written.

        The caller has the turn. Stops after `until`, which is known to be written; off the
        background thread before an output that needs it; without `wait` while a capture is
        held; without `young` before an output that still rests for other threads.
        """
        outer, self._resolver = self._resolver, threading.get_ident()
        queue, rested = self._queue, time.perf_counter() - LINGER_S
        seen = None  # an event that is complete: the outputs of a batch share one
        try:
            while queue:
                head = queue[0]
                if head.needs_thread and not own_thread:
                    return
                if head.lingers and not young and head.submitted > rested:
                    return
                done = head.done
                if head is not until and (done is None or done is not seen):
                    if not self._written(head, wait):
                        return
                    seen = done if head.error is None else None
                if not (head.shared and self._resolve_shares(head.done)):
                    queue.popleft()
                    self._resolve(head, own_thread)
                if until is not None and until.finished:
                    return
        finally:
            self._resolver = outer

    def _written(self, pending: PendingOutput, wait: bool = True) -> bool:
        """Whether the device has written `pending`; asks it, so not while a capture is held.

        With `wait` it blocks until the capture is over, else the answer is no.
        """
        if pending.done is None:
            return pending.batch is None
        if wait:
            self._gate.begin()
        elif not self._gate.try_begin():
            return False
        try:
            return pending.is_copied()
        except Exception as error:  # noqa: BLE001  it belongs to this one output
            self._wait_failed(pending, error)
            return True
        finally:
            self._gate.end()

    def _resolve(self, pending: PendingOutput, own_thread: bool) -> None:
        """Settle one output that left the queue, and count it out."""
        outer, self._current = self._current, pending
        try:
            if pending.copied is None:
                pending.copied = time.perf_counter()
                pending.let_go()
            self._settle(pending, *self._value_of(pending, own_thread))
        finally:
            pending.forget()
            self._bounds.leave(pending.charge)
            self._current = outer
            pending.future = None
            pending.finished = True
            self._tell_finished()

    def _resolve_shares(self, done: torch.Event | None) -> int:
        """Settle the outputs at the head that came with `done`; return how many.

        As `_resolve`, with as little as possible for each: in a loop of small
        kernels it is this that decides against a blocking copy.
        """
        queue, small, now = self._queue, self._small, time.perf_counter()
        count = charge = 0
        arrived = None
        try:
            with own_tensors():
                while queue:
                    head = queue[0]
                    future = head.future
                    if head.done is not done or head.needs_thread or future is None:
                        break
                    group = head.group
                    if group is None:
                        for group, _ in head.values:
                            group.arrive(small)
                    elif group is not arrived:
                        group.arrive(small)
                        arrived = group
                    head.copied = now
                    head.sources = head.done = head.future = None
                    head.finished = True
                    if future.arrive():
                        self.resolved += 1
                        self.bytes_copied += head.nbytes
                    queue.popleft()
                    charge += head.charge
                    count += 1
        except Exception:  # noqa: BLE001  raised again by `_resolve`, for this one output
            return count
        finally:
            if count:
                self._bounds.leave(charge, count)
                self._tell_finished()
        return count

    def _tell_finished(self) -> None:
        if self._draining:
            with self._finished:
                self._finished.notify_all()

    def _value_of(
        self, pending: PendingOutput, own_thread: bool
    ) -> tuple[Any, BaseException | None]:
        """Build the host nest and run `on_host`; return the value or the error."""
        if pending.error is not None:
            return None, pending.error
        try:
            landed = pending.staged or pending.shared
            values = self._unstaged(pending) if landed else pending.values
            assert pending.rebuild is not None
            value = pending.rebuild(values)
            if pending.on_host is not None:
                value = self._pack(pending, value)
        except BaseException as error:  # whatever it is, it fails this output only
            if not own_thread and isinstance(error, KeyboardInterrupt):
                self._settle(pending, None, error)
                raise
            return None, error.with_traceback(_below(error))
        return value, None

    def _pack(self, pending: PendingOutput, value: Any) -> Any:
        """Run `on_host`, unless the result was given up."""
        on_host, future = pending.on_host, pending.future
        if on_host is None or future is None or not future.claim():
            return None
        pending.packed = time.perf_counter()
        self._release_copied()
        pending.packing = True
        try:
            return on_host(value)
        finally:
            pending.packing = False

    def _unstaged(self, pending: PendingOutput) -> Sequence[Any]:
        """Return the values of a small output, none of them in a staging buffer any more.

        A result that is kept would otherwise keep its pinned block, and pinning
        a new one for every output costs more than everything else (about 50 us
        on an H200 host).
        """
        with own_tensors():
            if pending.shared:
                for group, _ in pending.shares():
                    group.arrive(self._small)
                return [group.value(place) for group, place in pending.shares()]
            values = list(pending.values)
            for at in pending.staged:
                values[at] = self._small.take(values[at])
        return values

    def _settle(self, pending: PendingOutput, value: Any, error: BaseException | None) -> None:
        """Give the future its outcome, unless it already has one."""
        future = pending.future
        if future is None:
            return
        pending.resolved = time.perf_counter()
        if not future.settle(value, error):
            return
        if error is not None:
            self._counters.add("failed")
        else:
            self.resolved += 1
            self.bytes_copied += pending.nbytes

    def _release_copied(self) -> None:
        """Free the device memory of outputs that are copied but cannot be resolved yet."""
        for pending in self._queue.copy():
            if pending.error is not None or not self._written(pending, wait=False):
                return
            if pending.copied is None:
                pending.copied = time.perf_counter()
                pending.let_go()

    def _release_behind_packing(self) -> None:
        """Do `_release_copied` from submit, while an `on_host` keeps the thread busy."""
        current = self._current
        if current is not None and current.packing:
            self._release_copied()


def _below(error: BaseException) -> Any:
    """Return the traceback without this package's frame, whose locals hold the output."""
    traceback = error.__traceback__
    return traceback if traceback is None or traceback.tb_next is None else traceback.tb_next
