"""The pictures of a result: what they show, the files, and what is refused."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from omni_platforms.bench import plot
from omni_platforms.bench.draw import styles
from omni_platforms.bench.panels import Dot, panels
from omni_platforms.bench.rows import Case, Count, Target, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.cli import main
from omni_platforms.errors import BenchError

TIMES = {"floor": 0.010, "bare copy": 0.001, "ours": 0.0103, "theirs": 0.040}


def rows(benchmark: str, case: Case, **targets: Target) -> list[dict[str, Any]]:
    samples = {way: Samples((value, value, 1.1 * value)) for way, value in TIMES.items()}
    found = rows_from(samples, benchmark=benchmark, case=case, base="floor", targets=targets)
    return [row.as_dict() for row in found]


def document() -> dict[str, Any]:
    found = [
        *rows(
            "pipeline",
            {"part": "one <process>", "forward_s": 0.01, "output_bytes": 4096},
            ours=Target(1.02, "ratio at most"),
        ),
        *rows("pipeline", {"part": "one <process>", "forward_s": 0.02, "output_bytes": 4096}),
        *rows("handoff", {"part": "all", "bytes": 4096}),
    ]
    count = Count("submit", {}, "allocations", 2, "allocations", limit=0, met=False)
    return {
        "schema_version": 1,
        "date": "2026-11-30",
        "settings": {},
        "machine": {
            "platform": "cpu",
            "device_count": 1,
            "device_name": "a <device>",
            "simulated": False,
            "cpu": "a processor",
            "cores": 2,
            "memory_bytes": 1 << 34,
            "load": 0.1,
            "os": "Linux",
        },
        "versions": {"torch": "2.13.0"},
        "rows": found,
        "counts": [count.as_dict()],
        "warnings": ["the machine is <noisy>"],
    }


def test_requests_of_different_length_are_compared_as_ratios() -> None:
    panel = panels(document()["rows"])[0]
    assert (panel.unit, panel.axis) == ("ratio", "times floor")
    assert [line.label for line in panel.lines] == [
        "forward 10.0 ms, output 4.10 KB",
        "forward 20.0 ms, output 4.10 KB",
    ]
    assert panel.ways == ["ours", "theirs"]  # neither the base nor a copy that computes nothing
    assert panel.lines[0].dots[0] == Dot("ours", *[pytest.approx(1.03)] * 3, 1.02, False)
    assert panel.lines[1].dots[0].target is None


def test_other_times_are_compared_as_they_are_and_a_lone_case_has_a_line_a_way() -> None:
    panel = panels(document()["rows"])[1]
    assert (panel.unit, panel.axis) == ("s", "time")
    assert panel.title == "handoff: all, 4.10 KB"
    assert [line.label for line in panel.lines] == list(TIMES)
    assert [line.dots[0].value for line in panel.lines] == list(TIMES.values())


def test_times_far_apart_have_a_logarithmic_axis() -> None:
    for found, far_apart in ((rows("b", {}), True), (rows("b", {})[2:], False)):
        (panel,) = panels(found)
        assert panel.logarithmic == far_apart


def test_a_way_looks_the_same_in_all_panels_of_its_benchmark() -> None:
    here = [row for n in (1, 2) for row in rows("b", {"part": "here", "n": n})[:3]]
    there = [row for n in (1, 2) for row in rows("b", {"part": "there", "n": n})[2:]]
    found = panels([*here, *there])
    assert [panel.ways for panel in found] == [["floor", "bare copy", "ours"], ["ours", "theirs"]]
    assert list(styles(found, "b")) == list(TIMES)
    assert len(set(styles(found, "b").values())) == len(TIMES)
    assert styles(found, "another") == {}


def test_a_picture_and_a_page_are_written(tmp_path: Path) -> None:
    files = plot.write_plot(document(), tmp_path / "result")
    assert files == [tmp_path / "result.png", tmp_path / "result.html"]
    with Image.open(files[0]) as image:
        assert image.size[0] > 1000
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 20  # something was drawn
    page = files[1].read_text(encoding="utf-8")
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "one &lt;process&gt;" in page
    assert "<noisy>" not in page
    assert "<td class='missed'>MISSED</td>" in page
    assert "allocations" in page
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert len(pictures) == 2
    for picture in pictures:
        assert ElementTree.fromstring(b64decode(picture)).tag.endswith("svg")


def test_what_cannot_be_written_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BenchError, match=r"x\.png and x\.html, not x\.pdf"):
        plot.check_plot(tmp_path / "x.pdf")
    with pytest.raises(BenchError, match="no folder"):
        plot.check_plot(tmp_path / "nowhere" / "x.png")
    plot.check_plot(tmp_path / "x.png")
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(BenchError, match=re.escape("pip install 'omni-platforms[bench]'")):
        plot.check_plot(tmp_path / "x.png")


def test_a_result_without_rows_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no rows"):
        plot.write_plot({**document(), "rows": []}, tmp_path / "x")


def test_the_command_plots_a_saved_result(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(document()))
    words = ["bench", "--from", str(saved), "--plot", str(tmp_path / "picture.png"), "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["warnings"] == ["the machine is <noisy>"]
    assert (tmp_path / "picture.html").is_file()
    assert f"wrote {tmp_path / 'picture.png'}" in done.stderr
    words[4] = str(tmp_path / "picture.gif")
    assert CliRunner().invoke(main, words).exit_code == 1
