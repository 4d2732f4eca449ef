"""Listening in a worker's process: its forwards, its output thread, and the way of each output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from omni_platforms.engine.worker.start import Parts
from omni_platforms.engine.worker.work import Phase
from omni_platforms.observe import hub
from omni_platforms.observe.around import put_around, take_away
from omni_platforms.observe.device_clock import DeviceClock, unless_captured
from omni_platforms.observe.sink import Record, now
from omni_platforms.observers import Made


def attach(made: Made) -> None:
    """Listen to a worker's parts."""
    parts: Parts = made.thing
    put_around(parts.loop, "forward", _forward)
    put_around(parts.loop, "forward_batch", _forward)
    put_around(parts.outputs, "deliver", _deliver)
    table = _Table(parts)
    put_around(parts.table, "add", table.add)
    put_around(parts.table, "enter", table.enter)
    put_around(parts.table, "drop", table.drop)
    put_around(parts.table, "finish", table.finish)


def detach(made: Made) -> None:
    """Listen no more."""
    parts: Parts = made.thing
    take_away(parts.loop, "forward", "forward_batch")
    take_away(parts.outputs, "deliver")
    take_away(parts.table, "add", "enter", "drop", "finish")


def _forward(forward: Any, task: Any, *more: Any) -> Any:
    with hub.step("forward", task.id):
        return forward(task, *more)


def _deliver(deliver: Any, outgoing: Any) -> None:
    with hub.step("deliver", outgoing.name):
        deliver(outgoing)


class _Marks:
    """What the device's clock is asked about one output: where its work begins and ends."""

    computing: Any = None
    computed: Any = None
    copied: Any = None


class _Table:
    """The steps around the table of a worker: its outputs, and the marks on their streams."""

    def __init__(self, parts: Parts) -> None:
        arena = parts.arena
        self._table = parts.table
        self._rank = parts.rank
        self._device = str(arena.device)
        self._side = arena.side_stream
        self._gate = arena.capture_gate
        with self._gate:
            self._clock = DeviceClock(arena.platform, arena.device)
        self._capturing = functools.partial(arena.platform.is_capturing, arena.device)
        self._open: dict[str, tuple[Record, _Marks]] = {}
        self._last_copied: float | None = None

    def add(self, add: Callable[..., None], name: str, *more: Any) -> None:
        """Open the record of an output that was asked for: on the reader's thread."""
        add(name, *more)
        record = Record("work", name, f"worker {self._rank}", self._device)
        record.facts.update(rank=self._rank, blocking=self._side is None)
        self._open[name] = record, _Marks()
        hub.opened(record)

    def enter(self, enter: Callable[..., bool], name: str, phase: Phase) -> bool:
        """Mark the streams where the device's work on an output begins and ends."""
        wanted = enter(name, phase)
        opened = self._open.get(name)
        if opened is not None and phase in (Phase.COMPUTE, Phase.GATE) and not self._capturing():
            unless_captured(self._gate, functools.partial(self._mark, opened[1], phase))
        return wanted

    def _mark(self, marks: _Marks, phase: Phase) -> None:
        if phase is Phase.COMPUTE:
            marks.computing = self._clock.mark(None)
        else:
            marks.computed = self._clock.mark(None)
            marks.copied = None if self._side is None else self._clock.mark(self._side)

    def drop(self, drop: Callable[[str], bool], name: str) -> bool:
        """Close the record of an output that was dropped before anything was done for it."""
        stamps = self._table.stamps(name)
        over = drop(name)
        if over:
            self._close(name, stamps, True)
        return over

    def finish(self, finish: Callable[[str], bool], name: str) -> bool:
        """Close the record of an output that is sent, failed or given up."""
        stamps = self._table.stamps(name)
        dropped = finish(name)
        self._close(name, stamps, dropped)
        return dropped

    def _close(self, name: str, stamps: dict[str, float], dropped: bool) -> None:
        opened = self._open.pop(name, None)
        if opened is None:
            return
        record, marks = opened
        record.closed, record.error = now(), "dropped" if dropped else None
        record.moments.update(stamps)
        record.spans = unless_captured(self._gate, lambda: self._spans(marks)) or {}
        hub.closed(record)

    def _spans(self, marks: _Marks) -> dict[str, tuple[float, float]]:
        """Return the times of the device, where it has all of them."""
        at = self._clock.at
        begun, computed, copied = at(marks.computing), at(marks.computed), at(marks.copied)
        if begun is None or computed is None:
            return {}
        spans = {"forward": (begun, computed)}
        if copied is not None:
            start = max(computed, self._last_copied or computed)
            spans["copy"] = (min(start, copied), copied)
            self._last_copied = copied
        return spans
