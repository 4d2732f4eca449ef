"""`bench --recommend`: what it measures, prints and refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from omni_platforms.bench import recommend
from omni_platforms.bench.advice import Handover, Machine, Workload, advise
from omni_platforms.bench.context import Bench
from omni_platforms.cli import main
from omni_platforms.errors import BenchError
from omni_platforms.platform.cpu import CpuPlatform

SMALL = "4098"


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    monkeypatch.setattr(recommend, "_ARENA_BYTES", 1 << 20)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "--rounds", "2", *arguments])


def test_one_workload_as_json() -> None:
    done = run("--recommend", "--forward-ms", "10", "--output-bytes", SMALL, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    (handover,) = document["handovers"]
    (advice,) = document["advice"]
    assert handover["output_bytes"] == 4100  # whole int32
    assert handover["copy_bytes_per_s"] == pytest.approx(4100 / handover["copy_s"])
    assert document["machine"]["arena_s_per_byte"] > 0
    assert document["machine"]["memory_left"] > 0
    assert advice["forward_s"] == 0.01
    assert advice["settings"][0]["value"] == "sync"


def test_the_usual_workloads_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommend, "OUTPUTS", (4096, 8192))
    done = run("--recommend")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("an output of") == 2
    assert done.stdout.count("omni-platforms run --mode sync") == 6
    assert "no side streams" in done.stdout


def test_settings_that_do_not_depend_on_the_forward_are_said_once() -> None:
    here = Machine(True, "", 1e-9, 1 << 36)
    image = Handover(12_582_912, 0.3e-3, 1e-3, 5e-5, 5e-4, 1 << 24, 12_582_912)
    found = [advise(here, image, Workload(forward)).as_dict() for forward in (0.002, 0.004)]
    text = "\n".join(recommend._advice_lines(found))
    assert text.count("MultiprocExecutor(arena_initial_bytes=) 150994944: ") == 1
    assert text.count("--mode async: ") == text.count("one request at a time async: ") == 2
    assert text.count("OMNI_ASYNC_OUTPUT_TIMEOUT leave it: ") == 2


def test_a_wrong_byte_gives_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(value: torch.Tensor) -> torch.Tensor:
        copy = value.clone()
        copy[3] += 1
        return copy

    monkeypatch.setattr(recommend, "blocking_copy", wrong)
    with pytest.raises(BenchError, match="recommend, blocking"):
        recommend.recommend(Bench(CpuPlatform(), torch.device("cpu"), 1, output_bytes=4096))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--recommend", "submit"),
        ("--recommend", "--from", "x.json"),
        ("--forward-ms", "10"),
        ("--output-bytes", "4096"),
        ("submit", "--output-bytes", "4096"),
        ("--from", "x.json", "--output-bytes", "4096"),
        ("--recommend", "--forward-ms", "0"),
        ("--recommend", "--output-bytes", "0"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2
