"""When the device did something, by its own clock, as moments of the host's clock.

Timed events give distances on the device; one of them whose moment the host saw places all others.
A platform need not promise that such distances are true: they are compared with the host's clock
once, and not used where they differ (a simulated device counts tasks, for one).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from omni_platforms.observe.sink import now
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.platform.interface import OmniPlatform

Answer = TypeVar("Answer")
Spans = dict[str, tuple[float, float]]

_TRIAL_S = 4e-3
_TOLERANCE_S = 1e-3  # of the trial: hosts are late, but not by this, in one of three trials
_TRIALS = 3
_PLACED_FOR_S = 1.0  # two clocks drift apart: some 50 us in a second is seen


class DeviceClock:
    """Places timed events of one device on the host's clock. Any thread may call it.

    `usable` says whether it can; making one blocks for some milliseconds. `make_event` makes an
    event that has a time once it is complete.
    """

    def __init__(
        self,
        platform: OmniPlatform,
        device: torch.device,
        make_event: Callable[[torch.device], Any] | None = None,
    ) -> None:
        self._platform = platform
        self._device = device
        self._make_event = make_event or _timed_event
        self._base: tuple[Any, float] | None = None
        self._stream: torch.Stream | None = None
        self.usable = self._try()

    def mark(self, stream: torch.Stream | None) -> Any:
        """Record an event on a stream of the device (the current one for `None`), or return `None`.

        Does not block, but for some microseconds once a second.
        """
        if not self.usable:
            return None
        if self._base is None or now() - self._base[1] > _PLACED_FOR_S:
            self._base = self._placed()
        return self._recorded(stream)

    def at(self, mark: Any) -> float | None:
        """Return the moment of an event, or `None` before it is complete. Does not block."""
        base = self._base
        if mark is None or base is None or not mark.query():
            return None
        return float(base[1] + base[0].elapsed_time(mark) / 1e3)

    def _try(self) -> bool:
        if self._platform.device_type == "cpu":
            return False
        try:
            self._stream = self._platform.create_side_stream(self._device)
            return self._stream is not None and any(self._is_true() for _ in range(_TRIALS))
        except Exception:  # noqa: BLE001  whatever it is, there are no device times here
            return False

    def _is_true(self) -> bool:
        """Whether the device's clock goes as the host's."""
        self._base = self._placed()
        time.sleep(_TRIAL_S)
        end, seen = self._placed()
        passed = self._base[0].elapsed_time(end) / 1e3
        return bool(abs(passed - (seen - self._base[1])) < _TOLERANCE_S)

    def _placed(self) -> tuple[Any, float]:
        """Return an event on a stream without work, and the moment at which it was complete."""
        event = self._recorded(self._stream)
        event.synchronize()
        return event, now()

    def _recorded(self, stream: torch.Stream | None) -> Any:
        event = self._make_event(self._device)
        event.record(self._platform.current_stream(self._device) if stream is None else stream)
        return event


def _timed_event(device: torch.device) -> torch.Event:
    return torch.Event(device, enable_timing=True)


def unless_captured(gate: CaptureGate, ask: Callable[[], Answer]) -> Answer | None:
    """Ask the device, unless somebody holds a capture, which that could break: then `None`."""
    if not gate.try_begin():
        return None
    try:
        return ask()
    finally:
        gate.end()


class CopyTimes:
    """The device's times of the copies on one side stream, each behind a computation."""

    def __init__(self, clock: DeviceClock, side: torch.Stream | None) -> None:
        self._clock = clock
        self._side = side
        self._last: float | None = None

    def mark(self) -> Callable[[], Spans] | None:
        """Mark what the calling thread's stream and the side stream have to do up to here.

        Returns what gives the span of the copy once it is done, without blocking: {} before.
        """
        if self._side is None or not self._clock.usable:
            return None
        computed, copied = self._clock.mark(None), self._clock.mark(self._side)
        return lambda: self._span(computed, copied)

    def _span(self, computed: Any, copied: Any) -> Spans:
        start, end = self._clock.at(computed), self._clock.at(copied)
        if start is None or end is None:
            return {}
        if self._last is not None and self._last < end:
            start = max(start, self._last)  # the copy before it had the stream until then
        self._last = end
        return {"copy": (min(start, end), end)}
