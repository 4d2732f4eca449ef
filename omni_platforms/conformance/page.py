"""A report as one HTML page that needs nothing else: no script, no network. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from omni_platforms.conformance.record import Outcome, Report, Row
from omni_platforms.conformance.summary import (
    TierSummary,
    headline,
    summaries,
    troubles,
    verdict,
    where,
)

_STYLE = Path(__file__).with_name("page.css")
_CLASS_OF_VERDICT = {
    "passed": "passed",
    "failed": "failed",
    "blocked": "blocked",
    "known failures": "known",
}


class Markup(str):
    """Text that is HTML already; any other `str` is escaped."""


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Return one element; an attribute's trailing underscore is dropped (`class_`)."""
    given = "".join(
        f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items() if value
    )
    inner = "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    return Markup(f"<{name}{given}>{inner}</{name}>")


def page(report: Report) -> str:
    """Return the whole page; ends in a newline."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", headline(report)),
        tag("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *_body(report)), lang='en')}\n"


def _body(report: Report) -> Iterable[Markup]:
    yield tag("h1", f"Conformance of {report.platform}")
    yield tag("p", *_badges(report))
    yield tag("p", verdict(report) + ".")
    yield _table((), _facts(report), class_="facts")
    yield tag("h2", "Tiers")
    yield _table(
        [tag("th", name) for name in ("tier", "about", "verdict")]
        + [tag("th", outcome.value, class_="number") for outcome in Outcome],
        [_tier(summary) for summary in summaries(report)],
    )
    rows = troubles(report)
    if rows:
        yield tag("h2", "What did not pass")
    yield from map(_trouble, rows)
    yield tag("h2", "Every test")
    headers = ("tier", "test", "outcome", "ran on", "seconds", "reason")
    yield _table([tag("th", name) for name in headers], [_test(row) for row in report.rows])


def _badges(report: Report) -> Iterable[Markup]:
    certified = report.tier_certified
    words = f"certified to {certified}" if certified else "certified to no tier"
    yield tag("span", words, class_="badge " + ("passed" if report.ok else "failed"))
    yield tag("span", report.mode.value, class_="badge")


def _facts(report: Report) -> Iterable[Sequence[Markup]]:
    facts = {"ran on": where(report), "suite": report.suite_version, "started": report.started}
    for name, value in {**facts, **report.versions}.items():
        if value:
            yield tag("th", name), tag("td", value)


def _tier(summary: TierSummary) -> Sequence[Markup]:
    counts = (str(summary.counts.get(outcome, "")) for outcome in Outcome)
    return [
        tag("td", summary.tier),
        tag("td", summary.title),
        tag("td", summary.verdict, class_=_CLASS_OF_VERDICT.get(summary.verdict, "")),
        *(tag("td", count, class_="number") for count in counts),
    ]


def _test(row: Row) -> Sequence[Markup]:
    return [
        tag("td", row.tier),
        tag("td", row.id, class_="id"),
        tag("td", row.outcome.value, class_=row.outcome.value),
        tag("td", row.mode.value),
        tag("td", f"{row.duration_s:.2f}", class_="number"),
        tag("td", row.reason),
    ]


def _trouble(row: Row) -> Markup:
    texts = {
        "Contract": row.contract,
        "Reason": row.reason,
        "Troubleshooting": row.remedy,
        "Ran on": row.mode.value,
    }
    said = [tag("p", tag("strong", f"{name}: "), text) for name, text in texts.items() if text]
    if row.detail:
        said.append(tag("details", tag("summary", "Details"), tag("pre", row.detail)))
    title = tag("h3", f"{row.outcome.value}: {row.tier} {row.id}")
    return tag("section", title, *said, class_=f"trouble {row.outcome.value}")


def _table(headers: Sequence[Markup], rows: Iterable[Sequence[Markup]], class_: str = "") -> Markup:
    head = [tag("thead", tag("tr", *headers))] if headers else []
    body = tag("tbody", *(tag("tr", *row) for row in rows))
    return tag("div", tag("table", *head, body, class_=class_), class_="wide")
