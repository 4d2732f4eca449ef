"""The record of a run: the certified tier, and JSON there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.conformance.record import (
    FAILURES,
    TIERS,
    Mode,
    Outcome,
    Report,
    Row,
    certified_tier,
    parse_tiers,
    report_from_json,
)
from omni_platforms.errors import ReportFormatError

RESULTS = st.lists(st.tuples(st.sampled_from(TIERS), st.sampled_from(Outcome)), max_size=25)
FEW_FAIL = st.sampled_from([Outcome.PASSED] * 6 + list(Outcome))
FULL_RUNS = st.tuples(*(st.lists(FEW_FAIL, min_size=1, max_size=4) for _ in TIERS)).map(
    lambda runs: [(tier, outcome) for tier, run in zip(TIERS, runs, strict=True) for outcome in run]
)
ANY_RUN = st.one_of(RESULTS, FULL_RUNS)
TEXTS = st.text(max_size=12)
ROWS = st.lists(
    st.builds(
        Row,
        id=st.text(min_size=1, max_size=8),
        tier=st.sampled_from(TIERS),
        outcome=st.sampled_from(Outcome),
        mode=st.sampled_from(Mode),
        reason=TEXTS,
        duration_s=st.floats(0, 1e6),
        contract=TEXTS,
        remedy=TEXTS,
        detail=TEXTS,
    ),
    max_size=6,
    unique_by=lambda row: row.id,
)
REPORTS = st.builds(
    Report,
    platform=st.text(min_size=1, max_size=8),
    mode=st.sampled_from(Mode),
    suite_version=TEXTS,
    tier_declared=st.none() | st.sampled_from(TIERS),
    rows=ROWS,
    device=TEXTS,
    device_count=st.integers(0, 16),
    versions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    started=TEXTS,
    tiers=st.lists(st.sampled_from(TIERS), unique=True),
)


def rows_of(results: list[tuple[str, Outcome]]) -> list[Row]:
    return [Row(f"test_{n}", *result, Mode.SIMULATED) for n, result in enumerate(results)]


def report_of(results: list[tuple[str, Outcome]], **fields: Any) -> Report:
    given_fields = {"tier_declared": None, **fields}
    return Report("acme", Mode.SIMULATED, "1", rows=rows_of(results), **given_fields)


def proved(results: list[tuple[str, Outcome]], tier: str) -> bool:
    """Say from scratch whether one tier is proved."""
    outcomes = [outcome for at, outcome in results if at == tier]
    fine = [outcome for outcome in outcomes if outcome in (Outcome.PASSED, Outcome.SKIPPED)]
    return outcomes.count(Outcome.PASSED) > 0 and len(fine) == len(outcomes)


@given(ANY_RUN)
def test_certified_is_the_last_of_the_unbroken_run_of_proved_tiers(
    results: list[tuple[str, Outcome]],
) -> None:
    certified = certified_tier(rows_of(results))
    reached = 0 if certified is None else TIERS.index(certified) + 1
    assert all(proved(results, tier) for tier in TIERS[:reached])
    assert reached == len(TIERS) or not proved(results, TIERS[reached])


@given(ANY_RUN, st.randoms())
def test_the_order_of_rows_does_not_matter(results: list[tuple[str, Outcome]], random: Any) -> None:
    rows = rows_of(results)
    before = certified_tier(rows)
    random.shuffle(rows)
    assert certified_tier(rows) == before


@given(ANY_RUN, st.sampled_from(sorted({*Outcome} - {Outcome.PASSED, Outcome.SKIPPED})))
def test_one_more_row_that_did_not_pass_caps_the_tier(
    results: list[tuple[str, Outcome]], outcome: Outcome
) -> None:
    for index, tier in enumerate(TIERS):
        certified = certified_tier(rows_of([*results, (tier, outcome)]))
        assert certified is None or TIERS.index(certified) < index


@given(ANY_RUN, st.none() | st.sampled_from(TIERS))
def test_a_run_is_ok_when_nothing_failed_and_the_claim_is_proved(
    results: list[tuple[str, Outcome]], declared: str | None
) -> None:
    report = report_of(results, tier_declared=declared)
    failed = any(outcome in FAILURES for _, outcome in results)
    claimed = TIERS[: TIERS.index(declared) + 1] if declared else ()
    assert report.ok == (not failed and all(proved(results, tier) for tier in claimed))


def test_a_part_of_the_suite_proves_no_claim_and_fails_none() -> None:
    part = report_of([("T2", Outcome.PASSED)], tier_declared="T5", tiers=("T2",))
    assert part.ok
    assert part.tier_certified is None


def test_a_known_failure_fails_no_run_and_certifies_no_tier() -> None:
    results = [("T0", Outcome.PASSED), ("T1", Outcome.PASSED), ("T1", Outcome.KNOWN)]
    assert report_of(results, tier_declared="T0").ok
    assert report_of(results).tier_certified == "T0"
    assert not report_of(results, tier_declared="T1").ok


@given(REPORTS)
def test_a_report_survives_its_json_form(report: Report) -> None:
    document = json.loads(json.dumps(report.to_json()))
    assert report_from_json(document) == report


@given(REPORTS.filter(lambda report: report.rows), st.data())
def test_a_report_without_a_required_field_or_with_a_wrong_type_is_refused(
    report: Report, data: st.DataObject
) -> None:
    document = json.loads(json.dumps(report.to_json()))
    place = data.draw(st.sampled_from([document, document["rows"][0]]))
    name = data.draw(st.sampled_from(["mode", *REQUIRED_OF[place is document]]))
    if data.draw(st.booleans()):
        del place[name]
    else:
        place[name] = data.draw(st.sampled_from([7.5, {"a": 1}, ["T9"], True, "T9 "]))
        if name in ("id", "platform", "suite_version") and place[name] == "T9 ":
            return  # any text is fine there
    with pytest.raises(ReportFormatError):
        report_from_json(document)


REQUIRED_OF = {
    True: ["platform", "suite_version", "tier_declared", "rows", "schema_version"],
    False: ["id", "tier", "outcome"],
}


@pytest.mark.parametrize("document", [None, [], "report", 3, {}, {"schema_version": 1}])
def test_what_is_no_report_is_refused(document: object) -> None:
    with pytest.raises(ReportFormatError):
        report_from_json(document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema_version 2"),
        ({"tier_certified": "T5"}, "claims to certify 'T5'"),
        ({"tiers": "T0"}, "tier"),
        ({"tiers": None}, "cannot be read"),
        ({"versions": ["torch"]}, "cannot be read"),
        ({"versions": {"torch": 2}}, "texts"),
        ({"device_count": -1}, "-1 devices"),
        ({"rows": [3]}, "a row is a JSON object"),
    ],
)
def test_a_wrong_value_is_named(change: dict[str, Any], words: str) -> None:
    document = report_of([("T0", Outcome.PASSED)]).to_json()
    with pytest.raises(ReportFormatError, match=words):
        report_from_json({**document, **change})


def test_one_test_has_one_row() -> None:
    row = Row("test_x", "T0", Outcome.PASSED, Mode.HARDWARE)
    with pytest.raises(ReportFormatError, match="more than one row for test_x"):
        Report("acme", Mode.HARDWARE, "1", None, [row, row])


def test_fields_of_a_later_version_are_ignored() -> None:
    document = report_of([("T0", Outcome.PASSED)]).to_json()
    assert report_from_json({**document, "colour": "red"}).tier_certified == "T0"


@pytest.mark.parametrize(
    ("text", "tiers"),
    [
        (None, TIERS),
        ("T2", ("T2",)),
        ("t3, T0-T1", ("T0", "T1", "T3")),
        ("T4-T4", ("T4",)),
    ],
)
def test_tiers_are_named_one_by_one_or_from_to(text: str | None, tiers: tuple[str, ...]) -> None:
    assert parse_tiers(text) == tiers


@pytest.mark.parametrize("text", ["", "T6", "T3-T1", "T1-", "T-", "2", "T0;T1", ","])
def test_a_text_that_names_no_tier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no tier"):
        parse_tiers(text)
