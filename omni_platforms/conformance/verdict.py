"""What the phases of one test (set-up, call, tear-down) come to, pure but for pytest's classes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from omni_platforms.conformance.known_failures import KnownFailure
from omni_platforms.conformance.record import Outcome

_LONGEST_REASON = 400


@dataclass(frozen=True)
class Verdict:
    """How a test ended, why in one line, and the traceback of a failure."""

    outcome: Outcome
    reason: str = ""
    detail: str = ""


def verdict_of(
    phases: Sequence[pytest.CallInfo[Any]],
    known: KnownFailure | None,
    today: datetime.date | None = None,
) -> Verdict:
    """Return the verdict on a test, which `known` says is known to fail."""
    for phase in phases:
        if phase.excinfo is not None and phase.excinfo.errisinstance(pytest.skip.Exception):
            return Verdict(Outcome.SKIPPED, _line(phase.excinfo.value))
    found = _plain_verdict(phases)
    if known is None or found.outcome is Outcome.ERROR:
        return found
    return _strict(found, known, _error(phases), today or datetime.date.today())


def _plain_verdict(phases: Sequence[pytest.CallInfo[Any]]) -> Verdict:
    for phase in phases:
        if phase.excinfo is not None:
            outcome = Outcome.FAILED if phase.when == "call" else Outcome.ERROR
            detail = str(phase.excinfo.getrepr(style="short", chain=True))
            return Verdict(outcome, _line(phase.excinfo.value), detail)
    return Verdict(Outcome.PASSED)


def _strict(
    found: Verdict, known: KnownFailure, error: BaseException | None, today: datetime.date
) -> Verdict:
    """Hold the entry to its word in both directions."""
    if known.is_over(today):
        return Verdict(Outcome.STALE, f"the entry for it ended on {known.until}: {known}")
    if error is None:
        return Verdict(Outcome.STALE, f"it passes: take its entry out of the list ({known})")
    if not known.covers(error):
        reason = f"{found.reason} (the list expects {known.exception})"
        return Verdict(Outcome.FAILED, reason, found.detail)
    return Verdict(Outcome.KNOWN, str(known), found.detail)


def _error(phases: Sequence[pytest.CallInfo[Any]]) -> BaseException | None:
    return next((phase.excinfo.value for phase in phases if phase.excinfo is not None), None)


def _line(error: BaseException) -> str:
    """Return the first lines of an error in one line, with its class unless it is an assertion."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    plain = isinstance(error, AssertionError | pytest.skip.Exception | pytest.fail.Exception)
    said = text if plain and text else f"{name}: {text}"
    return said if len(said) <= _LONGEST_REASON else said[:_LONGEST_REASON] + "..."
