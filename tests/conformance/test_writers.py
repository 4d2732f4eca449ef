"""A report's files: right for every text, whole, and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

from omni_platforms.conformance import markdown as markdown_module
from omni_platforms.conformance import page as page_module
from omni_platforms.conformance import schema
from omni_platforms.conformance.junit import junit
from omni_platforms.conformance.markdown import markdown
from omni_platforms.conformance.page import Markup, page
from omni_platforms.conformance.read import read_report
from omni_platforms.conformance.record import Outcome, Report
from omni_platforms.conformance.summary import headline, summaries, troubles
from omni_platforms.conformance.write import write_report
from omni_platforms.errors import ConformanceSetupError, ReportFormatError
from tests.conformance.reports import HOSTILE, MIXED, hostile_report
from tests.conformance.test_record import REPORTS

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta"}
Reads = Callable[[str], None]


class Page(HTMLParser):
    """Checks that every element is closed where it should be; collects texts and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


# The page ---------------------------------------------------------------------


def check_page_is_safe(text: str) -> None:
    parsed = Page(text)
    assert not {"script", "img", "link", "iframe"} & set(parsed.names)
    assert not {"src", "href"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"url\(|@import|https?://", "".join(parsed.texts))


def test_the_page_needs_nothing_from_outside_whatever_the_texts_say() -> None:
    check_page_is_safe(page(MIXED))
    check_page_is_safe(page(hostile_report()))
    # The parser takes NUL for a replacement character, as browsers do.
    assert HOSTILE.replace("\0", "\ufffd") in [
        t.replace("\0", "\ufffd") for t in texts_of_hostile()
    ]


def texts_of_hostile() -> list[str]:
    return Page(page(hostile_report())).texts


def test_a_page_that_does_not_escape_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "escape", lambda text: text)
    with pytest.raises(AssertionError):
        check_page_is_safe(page(hostile_report()))


@given(REPORTS)
@settings(max_examples=25, deadline=None)
def test_every_page_is_well_formed(report: Report) -> None:
    check_page_is_safe(page(report).replace("http://", "").replace("https://", ""))


def test_the_page_has_per_failure_the_contract_and_the_troubleshooting() -> None:
    texts = " ".join(Page(page(MIXED)).texts)
    for name in ("order", "stale", "fixture", "uuid"):
        for words in (f"{name} holds", f"{name} broke", f"mend {name}", f"Traceback of {name}"):
            assert words in texts
    assert "simulated" in texts
    assert "certified to T0" in texts


def test_only_markup_is_taken_for_markup() -> None:
    assert page_module.tag("p", "<b>", Markup("<i>x</i>"), class_='"') == (
        '<p class="&quot;">&lt;b&gt;<i>x</i></p>'
    )


# JUnit ------------------------------------------------------------------------


@given(REPORTS)
@settings(max_examples=25, deadline=None)
def test_junit_is_xml_with_a_case_a_row(report: Report) -> None:
    root = ElementTree.fromstring(junit(report).encode("utf-8"))
    assert len(root.findall("testsuite/testcase")) == len(report.rows)
    assert int(root.get("tests", "")) == len(report.rows)


def test_junit_counts_as_a_ci_system_should() -> None:
    root = ElementTree.fromstring(junit(MIXED))
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "2", "errors": "1", "skipped": "3"}
    (case,) = [c for c in root.iter("testcase") if c.get("name") == "test_order"]
    (result,) = case.findall("failure")
    assert result.get("message") == "failed: order broke"
    assert "Traceback of order" in (result.text or "")
    modes = {p.get("value") for p in root.iter("property") if p.get("name") == "mode"}
    assert modes == {"simulated"}


def test_junit_holds_what_xml_cannot() -> None:
    root = ElementTree.fromstring(junit(hostile_report()).encode("utf-8"))
    assert root.findall("testsuite/testcase/failure")


# Markdown ---------------------------------------------------------------------


def cells_of(text: str) -> list[list[str]]:
    """The rows of all tables in a Markdown text, as a parser sees them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rows: list[list[str]] = []
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            children = tokens[place + 1].children or []
            assert {child.type for child in children} <= {"text", "text_special"}
            rows[-1].append("".join(child.content for child in children))
    return rows


def check_tables(report: Report) -> None:
    rows = cells_of(markdown(report))
    (test,) = [row for row in rows if row[0] == "T2" and len(row) == 6]
    assert test[1].split() == " ".join(report.rows[0].id.split()).replace("\0", "\ufffd").split()


def test_markdown_tables_hold_any_text() -> None:
    check_tables(hostile_report())


def test_a_table_that_does_not_escape_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_module, "_plain", lambda text: " ".join(text.split()))
    with pytest.raises((AssertionError, ValueError)):
        check_tables(hostile_report())


def test_the_matrix_has_a_line_a_tier_and_the_tests_a_line_each() -> None:
    rows = cells_of(markdown(MIXED))
    verdicts = {row[0]: row[2] for row in rows if len(row) == 3 + len(Outcome)}
    assert verdicts == {
        "tier": "verdict",
        "T0": "passed",
        "T1": "known failures",
        "T2": "failed",
        "T3": "blocked",
        "T4": "not run",
        "T5": "nothing applies",
    }
    listed = [row for row in rows if len(row) == 6]
    assert [row[1] for row in listed[1:]] == [row.id for row in MIXED.rows]
    assert {row[3] for row in listed[1:]} == {"simulated"}


# The summary ------------------------------------------------------------------


def test_the_headline_says_what_it_ran_on_and_what_was_certified() -> None:
    assert headline(MIXED) == (
        "acme on a simulated device (2 x Acme One): certified to T0, declared T4; "
        "3 of 8 tests failed, 1 known to fail"
    )


@given(REPORTS)
@settings(max_examples=25, deadline=None)
def test_counts_and_troubles_are_those_of_the_rows(report: Report) -> None:
    assert sum(sum(tier.counts.values()) for tier in summaries(report)) == len(report.rows)
    shown = {Outcome.FAILED, Outcome.ERROR, Outcome.STALE, Outcome.KNOWN}
    assert {r.id for r in troubles(report)} == {r.id for r in report.rows if r.outcome in shown}


# Files ------------------------------------------------------------------------


def test_the_files_are_written_and_read_back(tmp_path: Path) -> None:
    files = write_report(hostile_report(), tmp_path / "new" / "folder")
    names = ["conformance.json", "conformance.md", "conformance.xml", "conformance.html"]
    assert [file.name for file in files] == names
    assert sorted(each.name for each in files[0].parent.iterdir()) == sorted(names)
    for path in (files[0], files[0].parent):
        assert read_report(path) == hostile_report()
    write_report(MIXED, files[0].parent)
    assert read_report(files[0]) == MIXED


def test_a_folder_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConformanceSetupError, match=r"cannot be written to .*Name another folder"):
        write_report(MIXED, tmp_path / "file")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[" * 100_000, '{"schema_version": 9}'])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "conformance.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ReportFormatError, match=re.escape(str(file))):
        read_report(file)


# The schema -------------------------------------------------------------------


def test_the_published_schema_is_the_codes() -> None:
    published = ROOT / "docs" / "conformance-report.schema.json"
    assert published.read_text() == schema.text(), (
        "run: python -m omni_platforms.conformance.schema"
    )


def complaints(value: object, rule: dict, where: str = "report") -> list[str]:  # type: ignore
    """Hold a value to the part of JSON Schema that our schema uses."""
    found = []
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    kind = types.get(rule.get("type", ""), object)
    if rule.get("type") == "number":
        kind = (int, float)  # type: ignore[assignment]
    if not isinstance(value, kind):
        return [f"{where} has a wrong type"]
    if "enum" in rule and value not in rule["enum"]:
        found.append(f"{where} is not one of the values")
    if "const" in rule and value != rule["const"]:
        found.append(f"{where} is not the constant")
    if isinstance(value, str) and len(value) < rule.get("minLength", 0):
        found.append(f"{where} is too short")
    if isinstance(value, dict):
        found += [f"{where} lacks {name}" for name in rule.get("required", ()) if name not in value]
        rest = rule.get("additionalProperties", {})
        for name, each in value.items():
            found += complaints(each, rule.get("properties", {}).get(name, rest), f"{where}.{name}")
    if isinstance(value, list):
        for each in value:
            found += complaints(each, rule.get("items", {}), f"{where}[]")
    return found


@given(REPORTS)
@settings(max_examples=50, deadline=None)
def test_every_report_keeps_the_schema_and_the_schema_names_every_field(report: Report) -> None:
    document = json.loads(json.dumps(report.to_json()))
    assert complaints(document, schema.SCHEMA) == []
    assert document.keys() == schema.SCHEMA["properties"].keys()
    assert all(each.keys() == schema.ROW["properties"].keys() for each in document["rows"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "real"}, "report.mode is not one"),
        ({"rows": [{}]}, "report.rows[] lacks outcome"),
        ({"schema_version": 2}, "not the constant"),
        ({"versions": {"torch": 2}}, "report.versions.torch has a wrong type"),
        ({"platform": ""}, "too short"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, object], words: str) -> None:
    document = {**MIXED.to_json(), **change}
    assert words in " ".join(complaints(document, schema.SCHEMA))
