"""What changed between two reports, test by test and in the certified tier. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omni_platforms.conformance.record import Outcome, Report, Row, reaches

# The better outcome has the higher rank; a test that does not apply is no better or worse.
_RANKS = {
    Outcome.PASSED: 2,
    Outcome.SKIPPED: 2,
    Outcome.KNOWN: 1,
    Outcome.STALE: 0,
    Outcome.BLOCKED: 0,
    Outcome.FAILED: 0,
    Outcome.ERROR: 0,
}


@dataclass(frozen=True)
class Change:
    """One test whose outcome differs; `None` where a report does not have it."""

    id: str
    tier: str
    before: Outcome | None
    after: Outcome | None
    reason: str
    """The later outcome's reason, or the earlier one's where there is no later one."""
    kind: str
    """One of: worse, better, other, added, removed."""

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON types."""
        found: dict[str, Any] = {"id": self.id, "tier": self.tier, "kind": self.kind}
        for name, outcome in (("before", self.before), ("after", self.after)):
            found[name] = None if outcome is None else outcome.value
        return {**found, "reason": self.reason}


@dataclass(frozen=True)
class Comparison:
    """Everything in which the report `after` differs from the report `before`."""

    before: Report
    after: Report
    changes: tuple[Change, ...]
    notes: Mapping[str, tuple[str, str]]
    """What else differs, such as `mode` or a version: the earlier and the later value."""

    @property
    def worse(self) -> bool:
        """Whether a test got worse, or `after` certifies less of what both asked for.

        A report over fewer tiers certifies nothing of the others, which is no change.
        """
        if any(change.kind == "worse" for change in self.changes):
            return True
        same = set(self.before.tiers) <= set(self.after.tiers)
        return same and not reaches(self.after.tier_certified, self.before.tier_certified)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON types."""
        tiers = {"before": self.before.tier_certified, "after": self.after.tier_certified}
        return {
            "worse": self.worse,
            "tier_certified": tiers,
            "changes": [change.to_json() for change in self.changes],
            "differs": {k: {"before": a, "after": b} for k, (a, b) in self.notes.items()},
        }


def compare(before: Report, after: Report) -> Comparison:
    """Compare two reports, by the ids of their rows. They may be of different platforms."""
    old, new = ({row.id: row for row in report.rows} for report in (before, after))
    ids = [*old, *(id_ for id_ in new if id_ not in old)]
    found = (_change(before, after, old.get(id_), new.get(id_)) for id_ in ids)
    changes = sorted(filter(None, found), key=lambda change: (change.kind != "worse", change.tier))
    return Comparison(before, after, tuple(changes), dict(_notes(before, after)))


def _change(before: Report, after: Report, old: Row | None, new: Row | None) -> Change | None:
    row = new or old
    earlier = None if old is None else old.outcome
    later = None if new is None else new.outcome
    if row is None or earlier is later:
        return None
    return Change(row.id, row.tier, earlier, later, row.reason, _kind(before, after, old, new))


def _kind(before: Report, after: Report, old: Row | None, new: Row | None) -> str:
    """Say which way it went. The same suite that has lost a test is worse than it was."""
    if old is None:
        return "added"
    if new is None:
        lost = before.suite_version == after.suite_version and old.tier in after.tiers
        return "worse" if lost else "removed"
    step = _RANKS[new.outcome] - _RANKS[old.outcome]
    return "other" if step == 0 else ("better" if step > 0 else "worse")


def _notes(before: Report, after: Report) -> Iterable[tuple[str, tuple[str, str]]]:
    for old, new in zip(_facts(before), _facts(after), strict=True):
        if old != new:
            yield old[0], (old[1], new[1])
    for name in sorted({*before.versions, *after.versions}):
        versions = (before.versions.get(name, "none"), after.versions.get(name, "none"))
        if versions[0] != versions[1]:
            yield f"version of {name}", versions


def _facts(report: Report) -> list[tuple[str, str]]:
    return [
        ("platform", report.platform),
        ("mode", report.mode.value),
        ("device", report.device),
        ("device_count", str(report.device_count)),
        ("suite_version", report.suite_version),
        ("tier_declared", report.tier_declared or "none"),
        ("tiers", ", ".join(report.tiers)),
    ]
