"""A report as JUnit XML, which CI systems read. Pure.

One test suite a tier. A known failure and a blocked test count as skipped, with
the outcome in the message; a stale entry counts as a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as Xml

from omni_platforms.conformance.record import TIERS, Outcome, Report, Row
from omni_platforms.conformance.summary import headline, summaries

_ELEMENT_OF = {
    Outcome.FAILED: "failure",
    Outcome.STALE: "failure",
    Outcome.ERROR: "error",
    Outcome.SKIPPED: "skipped",
    Outcome.BLOCKED: "skipped",
    Outcome.KNOWN: "skipped",
}
# What XML 1.0 cannot hold, not even escaped: tracebacks have colours in them.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Return the whole document; ends in a newline."""
    root = Xml.Element("testsuites", {"name": _clean(headline(report)), **_counts(report.rows)})
    titles = {each.tier: each.title for each in summaries(report)}
    for tier in TIERS:
        rows = [row for row in report.rows if row.tier == tier]
        if rows:
            root.append(_suite(report, f"{report.platform} {tier}: {titles[tier]}", rows))
    Xml.indent(root)
    body = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _suite(report: Report, name: str, rows: Sequence[Row]) -> Xml.Element:
    suite = Xml.Element("testsuite", {"name": _clean(name), **_counts(rows)})
    if report.started:
        suite.set("timestamp", _clean(report.started))
    suite.append(_properties(report))
    suite.extend(_case(report, row) for row in rows)
    return suite


def _properties(report: Report) -> Xml.Element:
    facts = {
        "platform": report.platform,
        "mode": report.mode.value,
        "device": report.device,
        "suite_version": report.suite_version,
        "tier_declared": report.tier_declared or "",
        "tier_certified": report.tier_certified or "",
        **{f"version.{name}": version for name, version in report.versions.items()},
    }
    properties = Xml.Element("properties")
    for name, value in facts.items():
        Xml.SubElement(properties, "property", {"name": _clean(name), "value": _clean(value)})
    return properties


def _case(report: Report, row: Row) -> Xml.Element:
    module, _, test = row.id.partition("::")
    names = {"classname": f"{report.platform}.{module}", "name": test or row.id}
    case = Xml.Element(
        "testcase", {**{k: _clean(v) for k, v in names.items()}, "time": f"{row.duration_s:.3f}"}
    )
    kind = _ELEMENT_OF.get(row.outcome)
    if kind is not None:
        reason = f"{row.outcome.value}: {row.reason}" if row.reason else row.outcome.value
        result = Xml.SubElement(case, kind, {"message": _clean(reason)})
        texts = (row.contract, row.remedy, row.detail)
        result.text = _clean("\n\n".join(text for text in texts if text)) or None
    Xml.SubElement(case, "system-out").text = f"ran on: {row.mode.value}"
    return case


def _counts(rows: Iterable[Row]) -> dict[str, str]:
    rows = list(rows)
    kinds = [_ELEMENT_OF.get(row.outcome) for row in rows]
    return {
        "tests": str(len(rows)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{sum(row.duration_s for row in rows):.3f}",
    }


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
