"""What a report says in short: a verdict a tier, and one headline. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from omni_platforms.conformance.record import (
    FAILURES,
    TIER_TITLES,
    TIERS,
    Mode,
    Outcome,
    Report,
    Row,
)

_SHOWN = (Outcome.FAILED, Outcome.ERROR, Outcome.STALE, Outcome.KNOWN)


@dataclass(frozen=True)
class TierSummary:
    """How one tier came out."""

    tier: str
    counts: Mapping[Outcome, int]

    @property
    def title(self) -> str:
        """What the tier is about."""
        return TIER_TITLES[self.tier]

    @property
    def verdict(self) -> str:
        """One of: not run, failed, blocked, known failures, passed, nothing applies."""
        if not self.counts:
            return "not run"
        if FAILURES & self.counts.keys():
            return "failed"
        if Outcome.BLOCKED in self.counts:
            return "blocked"
        if Outcome.KNOWN in self.counts:
            return "known failures"
        return "passed" if Outcome.PASSED in self.counts else "nothing applies"


def summaries(report: Report) -> list[TierSummary]:
    """Return one summary a tier, in order."""
    counts = {tier: Counter(r.outcome for r in report.rows if r.tier == tier) for tier in TIERS}
    return [TierSummary(tier, counts[tier]) for tier in TIERS]


def troubles(report: Report) -> list[Row]:
    """Return the rows that need somebody's attention: what failed, then what is known to."""
    found = [row for row in report.rows if row.outcome in _SHOWN]
    return sorted(found, key=lambda row: (row.outcome is Outcome.KNOWN, row.tier))


def headline(report: Report) -> str:
    """Return one sentence: which platform, on what, and what was certified of what it claims."""
    return f"{report.platform} on {where(report)}: {verdict(report)}"


def where(report: Report) -> str:
    """Return what it ran on: hardware, a simulated device, or no device at all."""
    if not report.device:
        return "no device"
    count = f"{report.device_count} x " if report.device_count > 1 else ""
    kind = "a simulated device" if report.mode is Mode.SIMULATED else "hardware"
    return f"{kind} ({count}{report.device})"


def verdict(report: Report) -> str:
    """Return what was certified, what was claimed, and how many tests failed or are known to."""
    certified = report.tier_certified
    words = f"certified to {certified}" if certified else "certified to no tier"
    if report.tier_declared is not None:
        words += f", declared {report.tier_declared}"
    if not report.complete:
        words += f" (only {', '.join(report.tiers) or 'no tier'} asked for)"
    failed = sum(row.outcome in FAILURES for row in report.rows)
    known = sum(row.outcome is Outcome.KNOWN for row in report.rows)
    words += f"; {failed} of {len(report.rows)} tests failed"
    return words + (f", {known} known to fail" if known else "")
