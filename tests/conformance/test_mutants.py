"""Every wrong platform is caught by its test, and every test of the suite is needed."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest

from omni_platforms.errors import CompilerMissingError
from omni_platforms.simulator.build import find_compiler
from tests.conformance.mutants.catalogue import JUSTIFIED, MUTANTS, TARGETS, suite_tests
from tests.conformance.mutants.mutant import Mutant
from tests.conformance.mutants.table import PAGE, needed, page, read_record, run_target

pytestmark = pytest.mark.simulated


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    """What the simulated devices of the child processes need; this process simulates nothing."""
    try:
        find_compiler()
    except CompilerMissingError as error:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(f"simulated: {error}")
        pytest.skip(f"simulated: {error}")


@functools.cache
def results(target: str) -> dict[str, Any]:
    """Run the mutants of one target once; its tests are one group, so one worker has them all."""
    return run_target(target, whole=False)


def _of(target: str, *values: Any, id: str) -> Any:
    marks = (pytest.mark.xdist_group(f"mutants-{target}"), pytest.mark.timeout(400))
    return pytest.param(*values, marks=marks, id=id)


@pytest.mark.parametrize("target", [_of(target, target, id=target) for target in TARGETS])
def test_the_suite_is_green_without_a_mutant(target: str) -> None:
    right = results(target)[""]
    assert right["caught"] == [], right["failed"]
    assert right["rows"] >= (8 if target == "plugin" else 100)


@pytest.mark.parametrize("mutant", [_of(m.target, m, id=m.name) for m in MUTANTS])
def test_a_mutant_is_caught_by_its_test(mutant: Mutant) -> None:
    found = results(mutant.target)[mutant.name]
    assert mutant.caught_by in found["caught"], f"{mutant.what}, and {mutant.caught_by} is green"


def test_there_is_a_mutant_for_each_knob() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    assert {mutant.knob for mutant in MUTANTS} == {"", *(f"K{n}" for n in range(1, 14))}


def test_every_test_of_the_suite_is_needed_or_has_a_reason() -> None:
    """Without one that is not justified, a mutant would be certified to the test's tier."""
    alone, every = needed(read_record()), {*suite_tests()}
    assert set(JUSTIFIED) <= every, "a reason for a test that is gone"
    assert alone | set(JUSTIFIED) == every, sorted(every - alone - set(JUSTIFIED))
    assert not alone & set(JUSTIFIED), "a reason for a test that a mutant needs"


def test_the_record_and_the_page_are_of_these_mutants() -> None:
    record = read_record()
    assert [mutant.name for mutant in MUTANTS] == list(record)
    assert all(mutant.caught_by in record[mutant.name] for mutant in MUTANTS)
    assert PAGE.read_text(encoding="utf-8") == page(record), (
        "write it anew: python -m tests.conformance.mutants.table"
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS)
def test_the_record_is_what_every_test_says_of_every_mutant(target: str) -> None:
    found = run_target(target, whole=True)
    assert found.pop("")["caught"] == []
    record = read_record()
    assert {name: result["caught"] for name, result in found.items()} == {
        name: record[name] for name in found
    }
