"""Progress on standard error: plain lines that do not flood, a bar on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from omni_platforms.jobs import progress
from omni_platforms.jobs.progress import Bar, Lines, shown
from omni_platforms.jobs.records import Ended
from omni_platforms.jobs.requests import read_requests
from omni_platforms.jobs.tally import Tally


def ended(seconds: float = 1.0, error: BaseException | None = None) -> Ended:
    (request,) = read_requests([b'{"id": "a"}']).requests
    spans = {"forward": (0.0, seconds / 2), "save": (seconds / 2, seconds)}
    return Ended(request, 0.0, error=error, stage="forward", spans=spans, finished=seconds)


def test_lines_come_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines, tally = Lines(total=100), Tally()
    clock[0] += 50  # the workers start
    lines.begin()
    for number in range(100):
        clock[0] += 0.1
        tally.add(ended(error=ValueError("no") if number == 7 else None))
        lines.moved(tally)
    said = capsys.readouterr().err.splitlines()
    assert 4 <= len(said) <= 6
    assert said[-1] == "omni-platforms: 100 of 100 requests, 1 failed, 10.00 a second"


def test_a_terminal_gets_a_bar_and_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()

    def terminal(**_: Any) -> Console:
        return Console(file=screen, force_terminal=True, width=100)

    monkeypatch.setattr("rich.console.Console", terminal)
    tally = Tally()
    tally.add(ended())
    tally.add(ended(error=ValueError("no")))
    with shown(2) as show:
        assert isinstance(show, Bar)
        show.begin()
        show.note("request 'a' [red]failed")
        show.moved(tally)
    assert "request 'a' [red]failed" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert "1 failed" in screen.getvalue()


def test_a_tally_has_the_figures_of_what_succeeded() -> None:
    tally = Tally()
    assert tally.latency() is None
    for seconds in (1.0, 2.0, 3.0, 4.0, 90.0):
        tally.add(ended(seconds))
    tally.add(ended(1000.0, error=ValueError("no")))
    assert tally.latency() == {"median": 3.0, "p90": 4.0, "max": 90.0}
    assert tally.stage_medians() == {"forward": 1.5, "save": 1.5}
    assert (tally.ok, tally.failed) == (5, 1)
    assert tally.failures[0]["error"] == "ValueError: no"


def test_failures_are_named_up_to_a_number() -> None:
    tally = Tally()
    for _ in range(500):
        tally.add(ended(error=ValueError("no")))
    assert tally.failed == 500
    assert len(tally.failures) == 100
