"""The command: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from omni_platforms import bench
from omni_platforms.bench.context import Bench
from omni_platforms.bench.rows import Count, Row
from omni_platforms.cli import main
from omni_platforms.errors import BenchError


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A benchmark of no time at all, alone in the table under the name `submit`."""
    module = SimpleNamespace(NAME="submit", seen=[], met=None, error=None)

    def run(run: Bench) -> list[Row]:
        module.seen.append(run)
        run.progress("working")
        print("a print of somebody's")
        if module.error is not None:
            raise module.error
        run.counts.append(Count("submit", {}, "allocations", 0, "allocations"))
        return [Row("submit", {"part": "toy"}, "ours", 1.0, 1.0, 1.0, run.rounds, met=module.met)]

    module.run = run
    monkeypatch.setitem(sys.modules, "toy_benchmark", module)  # type: ignore[arg-type]
    monkeypatch.setattr(bench, "BENCHMARKS", {"submit": "toy_benchmark"})
    monkeypatch.setattr("omni_platforms.bench.session.BENCHMARKS", {"submit": "toy_benchmark"})
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    return module


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_json_is_one_document_and_nothing_else(toy: SimpleNamespace) -> None:
    done = run("submit", "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["settings"] == {"benchmarks": ["submit"], "rounds": 21, "quick": False}
    assert [row["way"] for row in document["rows"]] == ["ours"]
    assert [count["name"] for count in document["counts"]] == ["allocations"]
    assert {"device_name", "cpu", "cores", "memory_bytes", "load", "os"} <= set(document["machine"])
    assert set(document["versions"]) == {"python", "torch", "omni-platforms"}
    assert "a print of somebody's" in done.stderr
    assert "omni-platforms: working" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "rounds", "quick"),
    [((), 21, False), (("--quick",), 5, True), (("--quick", "--rounds", "3"), 3, True)],
)
def test_rounds_and_size_reach_the_benchmark(
    toy: SimpleNamespace, arguments: tuple[str, ...], rounds: int, quick: bool
) -> None:
    assert run("submit", *arguments).exit_code == 0
    assert (toy.seen[0].rounds, toy.seen[0].quick) == (rounds, quick)


def test_a_wrong_byte_prints_no_number(toy: SimpleNamespace) -> None:
    toy.error = BenchError("ours: 1 of 512 elements are wrong")
    done = run("submit", "--json")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "ours: 1 of 512 elements are wrong" in done.stderr


@pytest.mark.parametrize(
    ("met", "arguments", "status"),
    [(False, (), 0), (False, ("--strict",), 3), (True, ("--strict",), 0), (None, ("--strict",), 0)],
)
def test_a_missed_target_is_a_failure_where_it_is_asked_to_be(
    toy: SimpleNamespace, met: bool | None, arguments: tuple[str, ...], status: int
) -> None:
    toy.met = met
    done = run("submit", *arguments)
    assert done.exit_code == status
    assert ("target missed: submit, toy: ours" in done.stderr) == (status == 3)


def test_a_saved_result_is_shown_again_without_measuring(
    toy: SimpleNamespace, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    file.write_text(run("submit", "--json").stdout)
    assert run("--from", str(file)).stdout == run("--from", str(file)).stdout
    assert "ours" in run("--from", str(file)).stdout
    assert len(toy.seen) == 1
    toy.met = False
    file.write_text(run("submit", "--json").stdout)
    assert run("--from", str(file), "--strict").exit_code == 3


@pytest.mark.parametrize(
    "arguments", [("nothing",), ("--rounds", "0"), ("submit", "--from", "x.json")]
)
def test_wrong_usage_is_refused(toy: SimpleNamespace, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2
    assert toy.seen == []


def test_a_result_that_is_not_there_is_an_error(toy: SimpleNamespace, tmp_path: Path) -> None:
    done = run("--from", str(tmp_path / "nowhere.json"))
    assert done.exit_code == 1
    assert "nowhere.json cannot be read" in done.stderr


def test_targets_stand_on_accelerators_only(toy: SimpleNamespace) -> None:
    assert run("submit").exit_code == 0
    assert not toy.seen[0].aims
