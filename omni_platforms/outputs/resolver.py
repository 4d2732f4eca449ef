"""Resolving outputs: from "the device has written it" to a settled future, in order.

Whoever has the turn resolves what stands at the head of the queue: the
background thread, or a caller of `result()`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from omni_platforms.outputs.bounds import Bounds
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.outputs.pending import PendingDescription, PendingOutput
from omni_platforms.outputs.small import SmallCopies
from omni_platforms.outputs.stats import Counters
from omni_platforms.platform.interface import OmniPlatform


class Resolver:
    """The queue of outputs in flight, and the steps that take one out of it.

    Any thread may call any method; `_advance` needs the turn.
    """

    def __init__(
        self,
        platform: OmniPlatform,
        small: SmallCopies,
        bounds: Bounds,
        gate: CaptureGate,
        counters: Counters,
    ) -> None:
        self._platform = platform
        self._small = small
        self._bounds = bounds
        self._gate = gate
        self._counters = counters
        self._queue: deque[PendingOutput] = deque()
        self._current: PendingOutput | None = None  # popped, not yet finished
        self._turn = threading.RLock()  # held by whoever resolves outputs
        self._resolver: int | None = None  # that thread's identity
        self._settling = threading.Lock()
        self._finished = threading.Condition(threading.Lock())
        self._draining = 0  # how many threads wait for `_finished`

    def resolving_here(self) -> bool:
        """Whether the calling thread is resolving an output now (an `on_host`, a callback)."""
        return self._resolver == threading.get_ident()

    def _in_flight(self) -> list[PendingOutput]:
        waiting = list(self._queue.copy())
        current = self._current
        return waiting if current is None or current.finished else [current, *waiting]

    def describe(self) -> list[PendingDescription]:
        """Describe every output in flight, oldest first."""
        return [pending.describe(at == 0) for at, pending in enumerate(self._in_flight())]

    def _await_device(self, pending: PendingOutput, timeout: float | None = None) -> bool:
        """Block until the device has written `pending`, or until `timeout` seconds passed.

        Returns whether it has. A failing wait becomes the output's error.
        """
        start = time.perf_counter()
        self._gate.begin()
        try:
            gate = None if pending.lingers else pending.gate
            if gate is not None:
                if not self._platform.synchronize_event(gate, timeout):
                    return False
                pending.ready = pending.ready or time.perf_counter()
                if timeout is not None:
                    timeout = max(0.0, timeout - (time.perf_counter() - start))
            done = pending.done
            return done is None or self._platform.synchronize_event(done, timeout)
        except Exception as error:  # noqa: BLE001  it belongs to this one output
            pending.error = pending.error or error
            return True
        finally:
            self._gate.end()

    def _advance(
        self, until: PendingOutput | None = None, own_thread: bool = False, wait: bool = True
    ) -> None:
        """Resolve the outputs at the head of the queue that the device has written.

        The caller has the turn. Stops after `until`, off the background thread
        before an output that needs it, and, without `wait`, while a capture is held.
        """
        outer, self._resolver = self._resolver, threading.get_ident()
        queue = self._queue
        try:
            while queue:
                head = queue[0]
                if head.needs_thread and not own_thread:
                    return
                if not self._written(head, wait):
                    return
                queue.popleft()
                self._resolve(head, own_thread)
                if head is until:
                    return
        finally:
            self._resolver = outer

    def _written(self, pending: PendingOutput, wait: bool = True) -> bool:
        """Whether the device has written `pending`; asks it, so not while a capture is held.

        With `wait` it blocks until the capture is over, else the answer is no.
        """
        if pending.done is None:
            return True
        if wait:
            self._gate.begin()
        elif not self._gate.try_begin():
            return False
        try:
            return pending.is_copied()
        except Exception as error:  # noqa: BLE001  it belongs to this one output
            pending.error = pending.error or error
            return True
        finally:
            self._gate.end()

    def _resolve(self, pending: PendingOutput, own_thread: bool) -> None:
        """Settle one output that left the queue, and count it out."""
        outer, self._current = self._current, pending
        try:
            pending.copied = pending.copied or time.perf_counter()
            pending.let_go()
            if self._start_settling(pending):
                self._settle(pending, *self._pack(pending, own_thread))
        finally:
            pending.values, pending.rebuild, pending.on_host = (), None, None
            self._bounds.leave(pending.charge)
            self._current = outer
            pending.finished = True
            if self._draining:
                with self._finished:
                    self._finished.notify_all()

    def _start_settling(self, pending: PendingOutput) -> bool:
        """Rule out cancellation; return whether the result is still wanted."""
        with self._settling:
            if pending.settled:
                return False
            if pending.future.set_running_or_notify_cancel():
                return True
            pending.settled = True
        self._counters.add("cancelled")
        return False

    def _pack(self, pending: PendingOutput, own_thread: bool) -> tuple[Any, BaseException | None]:
        """Build the host nest and run `on_host`; return the value or the error."""
        if pending.error is not None:
            return None, pending.error
        assert pending.rebuild is not None
        try:
            value = pending.rebuild(self._host_values(pending))
            pending.packed = time.perf_counter()
            if pending.on_host is not None:
                self._release_copied()
                pending.packing = True
                value = pending.on_host(value)
        except BaseException as error:  # whatever it is, it fails this output only
            if not own_thread and isinstance(error, KeyboardInterrupt):
                self._settle(pending, None, error)
                raise
            return None, error.with_traceback(_below(error))
        finally:
            pending.packing = False
        return value, None

    def _host_values(self, pending: PendingOutput) -> Sequence[Any]:
        """Return the values of the result; their staging buffers may serve again."""
        if not pending.staged:
            return pending.values
        with own_tensors():
            values = pending.host_values()
        self._small.give_back(pending.staging())
        return values

    def _settle(self, pending: PendingOutput, value: Any, error: BaseException | None) -> None:
        """Give the future its result, unless it already has one."""
        with self._settling:
            if pending.settled:
                return
            pending.settled = True
        pending.resolved = time.perf_counter()
        pending.future.finish(pending.timeline(), value, error)
        self._counters.add_settled("resolved" if error is None else "failed", pending.nbytes)

    def _fail(self, pending: PendingOutput, error: BaseException) -> None:
        with self._settling:
            if pending.settled:
                return
            future = pending.future
            wanted = future.running() or future.set_running_or_notify_cancel()
            pending.settled = not wanted
        if wanted:
            self._settle(pending, None, error)

    def _release_copied(self) -> None:
        """Free the device memory of outputs that are copied but cannot be resolved yet."""
        for pending in self._queue.copy():
            if pending.error is not None or not self._written(pending, wait=False):
                return
            pending.copied = pending.copied or time.perf_counter()
            pending.let_go()

    def release_behind_packing(self) -> None:
        """Do `_release_copied` from submit, while an `on_host` keeps the thread busy."""
        current = self._current
        if current is not None and current.packing:
            self._release_copied()


def own_tensors() -> AbstractContextManager[Any]:
    """Return a context whose new tensors are normal ones, also in a caller's inference mode."""
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return _NOTHING


_NOTHING = contextlib.nullcontext()


def _below(error: BaseException) -> Any:
    """Return the traceback without this package's frame, whose locals hold the output."""
    traceback = error.__traceback__
    return traceback if traceback is None or traceback.tb_next is None else traceback.tb_next
