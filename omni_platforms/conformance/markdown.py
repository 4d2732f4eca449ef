"""A report as Markdown: the tier matrix, what failed, and every test. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omni_platforms.conformance.record import Outcome, Report, Row
from omni_platforms.conformance.summary import headline, summaries, troubles, where

_LONGEST_FENCE = 3


def markdown(report: Report) -> str:
    """Return the whole page; ends in a newline."""
    parts = [
        f"# Conformance of {_plain(report.platform)}",
        _plain(headline(report)) + ".",
        _table(("", ""), _facts(report)),
        "## Tiers",
        _table(("tier", "about", "verdict", *(o.value for o in Outcome)), _tiers(report)),
        *_troubles(report),
        "## Every test",
        _table(("tier", "test", "outcome", "ran on", "seconds", "reason"), _tests(report)),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(report: Report) -> Iterable[Sequence[str]]:
    yield "ran on", where(report)
    yield "suite", report.suite_version
    if report.started:
        yield "started", report.started
    yield from report.versions.items()


def _tiers(report: Report) -> Iterable[Sequence[str]]:
    for tier in summaries(report):
        counts = (str(tier.counts.get(outcome, "")) for outcome in Outcome)
        yield tier.tier, tier.title, tier.verdict, *counts


def _tests(report: Report) -> Iterable[Sequence[str]]:
    for row in report.rows:
        seconds = f"{row.duration_s:.2f}"
        yield row.tier, row.id, row.outcome.value, row.mode.value, seconds, row.reason


def _troubles(report: Report) -> Iterable[str]:
    rows = troubles(report)
    if rows:
        yield "## What did not pass"
    for row in rows:
        yield from _trouble(row)


def _trouble(row: Row) -> Iterable[str]:
    yield f"### {row.tier} {_plain(row.id)}: {row.outcome.value} ({row.mode.value})"
    for name, text in (
        ("Contract", row.contract),
        ("Reason", row.reason),
        ("Troubleshooting", row.remedy),
    ):
        if text:
            yield f"**{name}.** {_plain(text)}"
    if row.detail:
        yield _fenced(row.detail)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Return `text` on one line, with nothing in it that Markdown or HTML would read."""
    line = " ".join(text.split())
    for character in "\\`*_[]<>|#&":
        line = line.replace(character, "\\" + character)
    return line


def _fenced(text: str) -> str:
    """Return `text` as a block of code whose fence is longer than any inside it."""
    fence = "`" * _LONGEST_FENCE
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"
