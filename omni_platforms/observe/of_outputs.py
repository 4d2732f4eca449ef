"""Listening to an `AsyncOutputExecutor`: its submits, its futures and its on_host functions."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any

from omni_platforms.observe import hub
from omni_platforms.observe.around import put_around, take_away
from omni_platforms.observe.device_clock import CopyTimes, DeviceClock, Spans, unless_captured
from omni_platforms.observe.sink import Record, name_of, now
from omni_platforms.observers import Made
from omni_platforms.outputs import AsyncOutputExecutor, OutputFuture
from omni_platforms.outputs.capture import CaptureGate


def attach(made: Made) -> None:
    """Listen to an executor."""
    executor: AsyncOutputExecutor = made.thing
    with executor._gate:
        clock = DeviceClock(executor.platform, executor.device)
    side = executor._issuer.side_stream
    times = CopyTimes(clock, side)
    executor.future_type = functools.partial(
        ObservedFuture, made.number, str(executor.device), side is not None
    )
    put_around(executor, "submit", functools.partial(_submit, executor._gate, times))


def detach(made: Made) -> None:
    """Listen no more. Futures that are out tell of their end all the same."""
    take_away(made.thing, "submit", "future_type")


def _submit(
    gate: CaptureGate,
    times: CopyTimes,
    submit: Callable[..., OutputFuture],
    output: Any,
    on_device: Any = None,
    on_host: Any = None,
    borrow: bool = False,
    streams: Any = None,
) -> OutputFuture:
    subject = _Subject()
    with hub.step("submit") as step:
        packed = None if on_host is None else functools.partial(_pack, subject, on_host)
        future = submit(output, on_device, packed, borrow, streams)
        if isinstance(future, ObservedFuture):
            subject.name = future.record.id
            step.about(subject.name)
            future.record.moments["handed_over"] = now()
            future.times = _timed(gate, times, future)
    return future


def _timed(
    gate: CaptureGate, times: CopyTimes, future: ObservedFuture
) -> Callable[[], Spans] | None:
    """Mark the end of an output's copy on its device, where that is a copy on the side stream."""
    if future.stream != "side":
        return None
    spans = unless_captured(gate, times.mark)
    return None if spans is None else lambda: unless_captured(gate, spans) or {}


class _Subject:
    """Which output an on_host is for: its number is known when it was submitted."""

    name = ""


def _pack(subject: _Subject, on_host: Callable[[Any], Any], value: Any) -> Any:
    with hub.step("on_host", subject.name):
        return on_host(value)


class ObservedFuture(OutputFuture):
    """An `OutputFuture` that tells of its begin, of its end, and of who waits for it."""

    times: Callable[[], Spans] | None = None
    """What the device's clock says, once the copy is done."""

    def __init__(
        self, executor: int, device: str, asynchronous: bool, waiter: Any, pending: Any
    ) -> None:
        super().__init__(waiter, pending)
        name = f"{executor}.{pending.number}"
        self.record = Record("output", name, f"outputs {executor}", device, pending.submitted)
        self._asynchronous = asynchronous
        hub.opened(self.record)

    @property
    def stream(self) -> str:
        """Whose stream its copy is on: "side", "caller's", or "no" for a blocking copy."""
        pending = self._pending
        if pending.own_stream:
            return "caller's"
        degraded = not pending.charge and pending.nbytes
        return "no" if self._at_once or degraded or not self._asynchronous else "side"

    def settle_now(self, value: Any, error: BaseException | None) -> None:
        """Enter the outcome inside `submit`, and tell of it."""
        super().settle_now(value, error)
        self._tell(error)

    def _enter(self, outcome: Any) -> bool:
        first = super()._enter(outcome)
        if first:
            self._tell(outcome[1])
        return first

    def cancel(self) -> bool:
        """Give up the result, and tell of it."""
        given_up = super().cancel()
        if given_up:
            self._tell(concurrent.futures.CancelledError())
        return given_up

    def result(self, timeout: float | None = None) -> Any:
        """Block until the output is on the host and return it: a step of the calling thread."""
        with hub.step("result", self.record.id):
            return super().result(timeout)

    def _tell(self, error: BaseException | None) -> None:
        first = object()
        if self.__dict__.setdefault("_told", first) is not first:  # atomic: two threads may come
            return
        record, moments = self.record, self._pending.timeline()._asdict()
        record.closed, record.error = now(), name_of(error)
        record.facts.update(bytes=self._pending.nbytes, stream=self.stream)
        record.moments.update((name, at) for name, at in moments.items() if at is not None)
        if self.times is not None and error is None:
            record.spans = self.times()
        hub.closed(record)
