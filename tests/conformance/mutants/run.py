"""Runs the suite on every mutant of one target, and prints which tests caught it, as JSON.

`python -m tests.conformance.mutants.run TARGET [--all]`: one process can simulate one
device. Without `--all`, only the test that is named for a mutant runs on it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Iterator
from typing import Any

from omni_platforms.conformance.record import FAILURES, Row
from tests.conformance import inline
from tests.conformance.mutants.mutant import Place

# It starts processes of its own, which no mutant of this process reaches.
_NEVER = "test_two_ranks_on_two_devices_reduce_and_gather"
_PROBE = "test_t0_probe.py"


def run_suite(name: str, files: list[str], only: str | None, fork: bool) -> list[Row]:
    """Run the suite, or one test of it, on the platform `name` in this process."""
    unwanted = [_NEVER] if fork else [_NEVER, "test_a_fork_after"]
    wanted = "not (" + " or ".join(unwanted) + ")" if only is None else only
    run = inline.run_suite("--omni-keep-going", "-k", wanted, files=tuple(files), name=name)
    return [] if run.report is None else list(run.report.rows)


def caught(rows: list[Row]) -> list[str]:
    """Return the names of the test functions that failed."""
    return sorted(
        {row.id.partition("::")[2].partition("[")[0] for row in rows if row.outcome in FAILURES}
    )


def results(target: str, whole: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for no mutant and for each, how many rows there were and which tests failed."""
    from tests.conformance.mutants.catalogue import MUTANTS, tests_of_the_suite
    from tests.conformance.mutants.plugins import RIGHT, planted

    files = tests_of_the_suite()
    probing = target == "plugin"
    name = inline.NAME if probing else target
    mine = [_PROBE] if probing else sorted(set(files.values()) - {_PROBE})
    place = None if probing else _place(target)
    gc.freeze()
    with planted(RIGHT)(place) if probing else contextlib.nullcontext():
        yield "", _summary(run_suite(name, mine, None, fork=True))
    for mutant in [m for m in MUTANTS if m.target == target]:
        only = None if whole else mutant.caught_by
        needed = mine if whole else [files[mutant.caught_by]]
        with mutant.plant(place), _cleaned(place):  # type: ignore[arg-type]
            rows = run_suite(name, needed, only, fork="fork" in mutant.caught_by)
        yield mutant.name, _summary(rows)


@contextlib.contextmanager
def _cleaned(place: Place | None) -> Iterator[None]:
    """Leave nothing of a mutant behind that the next one would be blamed for."""
    yield
    if place is not None:
        place.simulation.reset()
        for block in place.simulation.runtime.pinned.registered():
            place.simulation.runtime.pinned.unregister(block.pointer)


def _summary(rows: list[Row]) -> dict[str, Any]:
    failed = [f"{row.id}: {row.reason}" for row in rows if row.outcome in FAILURES]
    return {"rows": len(rows), "caught": caught(rows), "failed": failed}


def _place(target: str) -> Any:
    from omni_platforms.conformance.subject import find_subject

    subject = find_subject(target)
    platform = subject.platform
    assert subject.simulation is not None
    return Place(platform, subject.simulation)


if __name__ == "__main__":
    print(json.dumps(dict(results(sys.argv[1], "--all" in sys.argv[2:]))))
