"""What people and programs are shown, and a result that was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.bench.machine import cpu_model, load_warning
from omni_platforms.bench.report import missed, noise_warnings, print_report, read_result
from omni_platforms.bench.rows import Count, Target, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.bench.units import bytes_text, case_text, number_text, seconds_text
from omni_platforms.errors import BenchError


def rows(*times: float) -> list[Any]:
    return rows_from(
        {"bare copy": Samples((1e-3,) * len(times)), "ours": Samples(times)},
        benchmark="handoff",
        case={"bytes": 12_582_912},
        base="bare copy",
        targets={"ours": Target(1.5, "ratio at most")},
    )


def document(*times: float) -> dict[str, Any]:
    count = Count("submit", {"part": "steady state"}, "new segments", 2, "segments", 0, False)
    return {
        "schema_version": 1,
        "date": "2026-01-01T00:00:00+00:00",
        "machine": {
            "platform": "cuda",
            "device_count": 1,
            "device_name": "A device",
            "simulated": False,
            "cpu": "A processor",
            "cores": 16,
            "memory_bytes": 2**37,
            "load": 0.5,
            "os": "Linux",
        },
        "versions": {"torch": "2.11.0"},
        "rows": [row.as_dict() for row in rows(*times)],
        "counts": [count.as_dict()],
        "warnings": ["something was odd"],
    }


def test_the_tables_say_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(document(1.2e-3, 1.25e-3, 1.3e-3))
    printed = capsys.readouterr().out
    for text in ("A device", "16 cores", "137 GB", "torch 2.11.0", "handoff: 12.6 MB"):
        assert text in printed
    (ours,) = [line for line in printed.splitlines() if line.strip().startswith("ours")]
    shown = "ours | 1.25 ms | 1.21 ms to 1.29 ms | 1.25 | at most 1.50 | met"
    assert ours.split() == shown.replace("|", "").split()
    (segments,) = [line for line in printed.splitlines() if "new segments" in line]
    assert segments.split() == ["new", "segments", "2", "segments", "at", "most", "0", "MISSED"]
    assert "ratios to bare copy" in printed
    assert "warning: something was odd" in printed


def test_missed_targets_are_listed() -> None:
    assert missed(document(1.2e-3)) == ["submit, steady state: new segments"]
    assert missed(document(1.8e-3))[0] == "handoff, 12.6 MB: ours"


def test_a_noisy_machine_is_warned_about() -> None:
    assert list(noise_warnings(rows(1.0, 1.01, 1.02))) == []
    (warning,) = noise_warnings(rows(1.0, 1.5, 3.0))
    assert warning.startswith("handoff: 1 of 2 times spread by more than 30%")


def test_a_saved_result_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(document(1e-3)))
    assert read_result(file) == document(1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "is no result"),
        (json.dumps({**document(1e-3), "schema_version": 99}), "schema_version 1"),
        (json.dumps({**document(1e-3), "rows": None}), "rows missing"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(BenchError, match=message):
        read_result(file)
    with pytest.raises(BenchError, match="cannot be read"):
        read_result(tmp_path / "nowhere.json")


def test_figures_have_three_digits_that_count() -> None:
    assert [seconds_text(s) for s in (2.5, 0.0312, 1.256e-5, 3.1e-8, 0.9999e-3, 0)] == [
        "2.50 s",
        "31.2 ms",
        "12.6 us",
        "31.0 ns",
        "1.00 ms",
        "0",
    ]
    assert [bytes_text(n) for n in (12_582_912, 234_800_000, 2048, 8)] == [
        "12.6 MB",
        "235 MB",
        "2.05 KB",
        "8 bytes",
    ]
    assert [number_text(n) for n in (1.0042, 1.254, 87.31, 412.0)] == [
        "1.004",
        "1.25",
        "87.31",
        "412",
    ]
    assert case_text({"part": "a loop", "leaf_bytes": 2048, "forward_s": 0.01, "queue": 8}) == (
        "a loop, leaf 2.05 KB, forward 10.0 ms, queue 8"
    )


def test_the_processor_has_a_name_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A processor\nmodel name\t: A processor\n")
    assert cpu_model(file) == "A processor"
    assert cpu_model(tmp_path / "nowhere")


def test_a_busy_machine_is_warned_about() -> None:
    assert load_warning({"load": 0.3, "cores": 2}) is None
    assert "load 1.4 on 2 cores" in (load_warning({"load": 1.4, "cores": 2}) or "")
