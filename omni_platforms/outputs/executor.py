"""`AsyncOutputExecutor`: outputs reach the host while the device computes on."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from omni_platforms import observers
from omni_platforms.errors import CaptureError, ExecutorClosedError
from omni_platforms.events import log_event
from omni_platforms.outputs.admission import Admission
from omni_platforms.outputs.bounds import Bounds, WhenFull
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.outputs.future import OutputFuture
from omni_platforms.outputs.host_copy import nbytes_of
from omni_platforms.outputs.issue import Issuer, OnDevice, Request, Streams
from omni_platforms.outputs.nest import flatten
from omni_platforms.outputs.pending import PendingDescription, PendingOutput
from omni_platforms.outputs.small import SMALL_BYTES
from omni_platforms.outputs.stats import Counters, OutputStats
from omni_platforms.outputs.waiter import Waiter
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, OmniPlatform

_EXIT_TIMEOUT_S = 5.0
_live: weakref.WeakSet[Waiter] = weakref.WeakSet()
logger = logging.getLogger(__name__)


class AsyncOutputExecutor:
    """Copies model outputs to the host behind the next forward.

    Parameters:
        platform: the platform to use; the process's `current_platform()` when `None`.
        device: the device whose outputs it takes; the calling thread's current one when `None`.
        max_pending_bytes: bytes of pinned host memory in flight, as the allocator rounds them.
        max_pending: outputs in flight.
        when_full: what `submit` does at a limit: "block" until there is room, "raise"
            `ExecutorFullError`, or "degrade" to a blocking copy that is not counted.

    Any thread may submit. Results arrive in the order of submission. Use it as
    a context manager, or call `close()`; at interpreter exit what is in flight
    is given a few seconds. Without events, side streams or pinned memory of
    the platform every output is copied with a blocking call, with equal results.

    Raises `ValueError` for a bad limit, policy or device, and whatever
    `current_platform()` raises.
    """

    future_type: Callable[..., OutputFuture] = OutputFuture
    """What makes the futures; observers give an executor another one."""

    def __init__(
        self,
        platform: OmniPlatform | None = None,
        device: DeviceLike = None,
        *,
        max_pending_bytes: int = 2 << 30,
        max_pending: int = 4096,
        when_full: WhenFull = "block",
    ) -> None:
        if when_full not in ("block", "raise", "degrade"):
            raise ValueError(f'when_full must be "block", "raise" or "degrade", not {when_full!r}')
        self._platform = _chosen(platform)
        self._device = self._platform.resolve_device(device)
        self._bounds = Bounds(max_pending_bytes, max_pending)
        self._gate = CaptureGate()
        self._counters = Counters()
        self._issuer = Issuer(self._platform, self._device, self._counters)
        self._waiter = Waiter(
            self._platform,
            self._device,
            self._issuer,
            self._bounds,
            self._gate,
            self._counters,
        )
        self._admission = Admission(
            self._platform, self._bounds, self._waiter, self._counters, when_full
        )
        self._numbers = itertools.count()
        self._captures = Capability.GRAPH_CAPTURE in self._platform.capabilities
        self._is_direct = self._issuer.direct.is_likely
        self._alone = self._platform.device_count() == 1  # then it is every thread's current one
        _live.add(self._waiter)
        weakref.finalize(self, self._waiter.stop).atexit = False
        observers.announce("outputs", self)
        log_event(
            logger,
            "executor_started",
            platform=self._platform.name,
            device=self._device,
            mode="async" if self._issuer.asynchronous else "blocking",
            reason=self._issuer.reason,
        )

    @property
    def platform(self) -> OmniPlatform:
        """The platform in use."""
        return self._platform

    @property
    def device(self) -> torch.device:
        """The device whose outputs this executor takes."""
        return self._device

    def submit(
        self,
        output: Any,
        on_device: OnDevice | None = None,
        on_host: Callable[[Any], Any] | None = None,
        borrow: bool = False,
        streams: Streams | None = None,
    ) -> OutputFuture:
        """Hand over one output and return its future, without waiting for the device.

        `output` is any nest of dict, list, tuple, NamedTuple and dataclass with
        tensors and NumPy arrays as leaves; everything else in it is passed by
        reference. Results are new host tensors, writable, each with its own
        bytes, without autograd graph. Leaves that are on the host already are
        copied before this returns.

        `on_device(output)` runs on the side stream before the copy, on the
        calling thread. `on_host(result)` runs on the background thread and its
        value becomes the result. With `borrow` the caller may overwrite the
        tensors at once, otherwise only when the future is done: the copy of an
        output of up to 64 KiB may not even be started before somebody asks for
        it, or others have come. `streams` are the streams that produce the
        output, the current one when `None`.

        An error of `on_device`, of a copy or of `on_host` is the future's.
        Raises `UnsupportedOutputError` for a nest that contains itself,
        `ExecutorFullError` as `when_full` says, `ExecutorClosedError`,
        `ExecutorForkedError`, and `CaptureError` while a graph is captured.
        """
        here = self._alone or self._platform.is_current_device(self._device)
        self._check_usable(here)
        leaves, rebuild = flatten(output)
        pending = PendingOutput(next(self._numbers), self._waiter.futures_lock)
        pending.future = future = self.future_type(self._waiter, pending)
        pending.rebuild = rebuild
        if on_host is not None:
            pending.on_host = on_host
            pending.needs_thread = True
        elif here and on_device is None and not streams and self._is_direct(pending.number):
            pending.nbytes = sum(map(nbytes_of, leaves))
            if pending.nbytes <= SMALL_BYTES and self._waiter.settle_now(pending, leaves):
                return future
        admitted = self._admission.admit(pending, leaves)
        small = admitted and on_device is None and not streams and pending.nbytes <= SMALL_BYTES
        try:
            with self._gate:
                if not (small and self._issue_small(pending, leaves, here, borrow)):
                    request = Request(output, leaves, rebuild, on_device, borrow, streams)
                    self._issuer.issue(pending, request, blocking=not admitted)
        except BaseException:  # refused, or interrupted: it is not in flight
            self._bounds.leave(pending.charge)
            raise
        if on_device is not None and admitted:
            self._admission.charge_anew(pending)
        self._waiter.enqueue(pending)
        return future

    def drain(self, timeout: float = 10.0) -> None:
        """Block until every output submitted before this call is resolved.

        The barrier before device memory is released (sleep, wake, weight
        swap). Outputs that others submit meanwhile are accepted and not waited
        for. From inside an `on_host` or a callback it waits for the copies
        only. Raises `DrainTimeoutError` after `timeout` seconds: then nothing
        may be released.
        """
        self._waiter.drain(timeout)

    def release_memory(self, timeout: float = 10.0) -> None:
        """Drain, then give cached device and pinned host memory back to the system.

        Blocks. Raises `DrainTimeoutError`, with nothing released, when outputs
        are still in flight after `timeout` seconds.
        """
        self.drain(timeout)
        with self._gate:
            self._issuer.small.clear()
            self._platform.release_host_memory()
            self._platform.empty_cache()

    def capture_guard(self) -> AbstractContextManager[None]:
        """Return a context in which this executor makes no device call.

        Put it around a graph capture: allocations and event queries on any
        thread can invalidate one. Entering blocks until the calls under way
        have ended, so nothing before the capture may depend on later work.
        Other threads' submits wait; on this thread they raise `CaptureError`.
        """
        return self._gate.hold()

    def describe_pending(self) -> list[PendingDescription]:
        """Describe each output in flight: phase, age (seconds), bytes, what it waits for."""
        with self._gate:
            return self._waiter.describe()

    @property
    def closed(self) -> bool:
        """Whether it takes no outputs any more."""
        return self._waiter.closing

    def oldest_age(self) -> float:
        """Return how long the oldest output in flight has been there, in seconds; 0 without one."""
        return self._waiter.oldest_age()

    def phases(self, most: int = 256) -> dict[str, int] | None:
        """Count the oldest `most` outputs in flight by phase; `None` while a capture is held.

        Asks the device, and does not block.
        """
        if not self._gate.try_begin():
            return None
        try:
            return self._waiter.phases(most)
        finally:
            self._gate.end()

    def stats(self) -> OutputStats:
        """Return counts since the executor was made. Does not block."""
        bounds = self._bounds
        return OutputStats(
            mode="async" if self._issuer.asynchronous else "blocking",
            reason=self._issuer.reason,
            pinned=self._issuer.pinned,
            pending=bounds.count,
            pending_bytes=bounds.bytes,
            submitted=bounds.entered + self._waiter.at_once,
            at_once=self._waiter.at_once,
            resolved=self._waiter.resolved,
            bytes_copied=self._waiter.bytes_copied,
            peak_pending_bytes=bounds.peak_bytes,
            **self._counters.totals(),
        )

    def close(self, timeout: float = 60.0) -> None:
        """Deliver what is in flight, in order, then end the background thread.

        Blocks at most `timeout` seconds; futures that are not settled by then
        fail with `ExecutorClosedError`. Device memory in flight stays alive
        until the device is done with it. A second call is harmless; from
        inside an `on_host` it does not wait.
        """
        first = not self.closed
        self._waiter.close(timeout)
        if first and logger.isEnabledFor(logging.INFO):
            stats = self.stats()
            log_event(
                logger,
                "executor_closed",
                device=self._device,
                submitted=stats.submitted,
                resolved=stats.resolved,
                failed=stats.failed,
                cancelled=stats.cancelled,
            )

    def __enter__(self) -> AsyncOutputExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_usable(self, here: bool) -> None:
        if self._waiter.closing:
            self._waiter.check_process()
            raise ExecutorClosedError(
                "this executor is closed: make a new one"
            ) from self._waiter.cause
        if self._captures and self._platform.is_capturing(None if here else self._device):
            raise CaptureError(
                "the calling stream is capturing a graph, and a hand-over to the host cannot be "
                "part of one: submit the graph's static output after the replay, with borrow=True"
            )

    def _issue_small(
        self, pending: PendingOutput, leaves: list[Any], here: bool, borrow: bool
    ) -> bool:
        """Copy a small output on the caller's stream, now or, where that serves best, later."""
        issuer = self._issuer
        if not issuer.asynchronous:
            return False
        pending.own_stream = True
        pending.lingers = not pending.needs_thread
        may_wait = issuer.habit.may_wait(pending.number) and here and leaves and not borrow
        if not (may_wait and pending.lingers and issuer.batches.add(pending, leaves)):
            issuer.issue_small(pending, leaves, here)
        return True


def _chosen(platform: OmniPlatform | None) -> OmniPlatform:
    if platform is not None:
        return platform
    from omni_platforms.platform.selection import current_platform

    return current_platform()


def _close_all() -> None:
    """At interpreter exit: deliver what is in flight while the runtime still works."""
    for waiter in list(_live):
        waiter.close(_EXIT_TIMEOUT_S)


def _close_in_child() -> None:
    """In a forked child: the threads do not exist there, so each call looks at the process."""
    for waiter in list(_live):
        waiter.closing = True


atexit.register(_close_all)
os.register_at_fork(after_in_child=_close_in_child)
