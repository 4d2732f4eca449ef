"""How long the device was idle for want of work after each wait, from torch's profiler.

A wait that ends when the device has nothing left to do leaves it idle until the
host has launched more. This is the gap on the device around the end of the wait:
from the end of the last piece of work before it to the begin of the next one. A
wait after which other work is still running leaves no gap and costs the device
nothing. Blocked time and idle time are different things: in a loop whose steps
take the device longer than the host, the first is long and the second short.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from omni_platforms.audit.sites import Site, Sites
from omni_platforms.platform.interface import OmniPlatform

_MARK = "omni-audit-"
_RUNTIME = ("Synchronize", "Memcpy")

Span = tuple[float, float]


def busy_spans(work: Iterable[Span]) -> list[Span]:
    """Return the times at which the device does anything, joined and in order."""
    joined: list[list[float]] = []
    for begin, end in sorted(work):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return [(begin, end) for begin, end in joined]


def gap_after(wait: Span, busy: Sequence[Span]) -> Span | None:
    """Return when the device idles around the end of `wait`; `None` where it is at work then.

    Nothing before the first piece of work or after the last counts: the device
    was not yet, or no longer, in use.
    """
    at = bisect_right(busy, (wait[1], float("inf")))  # the first that begins after the wait
    if at == 0 or at == len(busy) or busy[at - 1][1] > wait[1]:
        return None
    return busy[at - 1][1], busy[at][0]


def idle_caused(waits: Iterable[tuple[int, Span]], busy: Sequence[Span]) -> dict[int, float]:
    """Return the idle time that each numbered wait caused, in the unit of the spans.

    Of several waits that end in one gap the first causes it: the others found
    the device idle already.
    """
    caused: dict[int, float] = {}
    taken: set[float] = set()
    for number, wait in sorted(waits, key=lambda each: each[1][1]):
        gap = gap_after(wait, busy)
        caused[number] = 0.0 if gap is None or gap[0] in taken else gap[1] - gap[0]
        if gap is not None:
            taken.add(gap[0])
    return caused


class Profile:
    """Runs the profiler over an audit and gives each wait the idle time that it caused."""

    def __init__(self, platform: OmniPlatform) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        own = platform.profiler_activity
        if own is not None and own not in activities:
            activities.append(own)
        self._profiler: Any = torch.profiler.profile(activities=activities)
        self._sites: dict[int, Site] = {}
        self._next = 0
        self._events: list[Any] | None = None
        self._done = False

    def begin(self) -> None:
        """Start the profiler. Raises what torch raises where another one runs."""
        self._profiler.__enter__()

    def end(self) -> None:
        """Stop the profiler; waits for the device."""
        self._profiler.__exit__(None, None, None)
        self._events = list(self._profiler.events())

    def mark(self) -> tuple[int, AbstractContextManager[Any]]:
        """Return a number, and a context that marks a wait with it in the profile."""
        self._next += 1
        return self._next, torch.profiler.record_function(f"{_MARK}{self._next}")

    def belongs(self, number: int, site: Site) -> None:
        """Say at which site the marked wait was."""
        self._sites[number] = site

    def runtime_events(self) -> dict[str, int]:
        """Return how often the runtime was called to copy or to wait, by the call's name."""
        names = Counter(event.name for event in self._events or () if _on_host(event))
        return {name: n for name, n in names.items() if any(word in name for word in _RUNTIME)}

    def attribute(self, sites: Sites) -> None:
        """Add the idle times to the sites; once, after `end`, where the device left a trace."""
        if self._events is None or self._done:
            return
        self._done = True
        work = [
            _span(event)
            for event in self._events
            if not _on_host(event)
            and not event.name.startswith(_MARK)
            and not getattr(event, "is_user_annotation", False)
        ]
        if not work:
            return
        for site in sites:
            site.idle = 0.0
        for number, idle in idle_caused(self._waits(), busy_spans(work)).items():
            site_of = self._sites.get(number)
            if site_of is not None:
                site_of.idle = (site_of.idle or 0.0) + idle * 1e-6

    def _waits(self) -> Iterator[tuple[int, Span]]:
        for event in self._events or ():
            if event.name.startswith(_MARK) and _on_host(event):
                yield int(event.name.removeprefix(_MARK)), _span(event)


def _on_host(event: Any) -> bool:
    return bool(event.device_type == torch._C._autograd.DeviceType.CPU)


def _span(event: Any) -> Span:
    return event.time_range.start, event.time_range.end
