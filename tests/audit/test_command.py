"""`omni-platforms audit`, from the command line's words to its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from omni_platforms.cli.audit import audit
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.selection import reset_platform, set_current_platform
from tests.audit import toy_loop

ROOT = Path(__file__).parents[2]

SCRIPT = """
    import sys
    import torch
    from omni_platforms import audit

    def denoise(latent, number):
        if (latent < -1).any():  # line 7
            raise AssertionError
        latent.sum().item()  # line 9
        return latent + number

    class Model(torch.nn.Module):
        def forward(self, latent, number):
            return denoise(latent, number)

    model = Model()
    latent = torch.zeros(3)
    for number in range(int(sys.argv[1])):
        latent = model(latent, number)
    audit.output(latent)
    print("the program's own words", sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def _cpu():
    set_current_platform(CpuPlatform())
    yield
    reset_platform()


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "loop.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return str(path)


def run(*words: str) -> Result:
    return CliRunner().invoke(audit, words)


def run_json(*words: str, status: int = 0) -> dict[str, Any]:
    result = run("--json", *words)
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert "the program's own words" in result.stderr
    return document


def by_line(document: dict[str, Any]) -> dict[int, tuple[str, int, float | None]]:
    return {s["line"]: (s["kind"], s["count"], s["per_step"]) for s in document["sites"]}


@pytest.mark.parametrize(
    "steps", [("--step-function", "__main__:denoise"), ("--step-module", "Model")]
)
def test_steps_are_found_by_name(script: str, steps: tuple[str, str]) -> None:
    document = run_json(*steps, script, "--", "5")
    assert document["steps"] == 5
    assert by_line(document) == {7: ("truth_value", 5, 1.0), 9: ("scalar_read", 5, 1.0)}
    assert document["mode"] == "cpu-as-device"
    assert "scalar_read" in document["covered_kinds"]
    wanted = {"file", "line", "kind", "count", "per_step", "blocked_s", "idle_s"}
    assert wanted | {"pattern", "hoistable", "source"} <= set(document["sites"][0])


def test_a_step_may_be_a_function_elsewhere(script: str) -> None:
    document = run_json("--step-function", "torch.nn:Module._call_impl", script, "--", "4")
    assert document["steps"] == 4


def test_only_the_first_steps_are_audited(script: str) -> None:
    document = run_json("--steps", "2", "--step-module", "Model", script, "--", "5")
    assert document["steps"] == 2
    assert document["count"] == 4


def test_more_than_the_budget_is_exit_status_3(script: str) -> None:
    assert run(script, "--max-syncs", "4", "--", "2").exit_code == 0
    result = run(script, "--max-syncs", "3", "--", "2")
    assert result.exit_code == 3
    assert "over the budget: 4 waits, and --max-syncs is 3" in result.output
    assert run_json("--max-syncs", "3", script, "--", "2", status=3)["over_budget"] is True


def test_the_table_has_the_line_and_what_to_do(script: str) -> None:
    result = run(script, "--step-module", "Model", "--", "3")
    assert result.exit_code == 0
    assert "loop.py:9  latent.sum().item()  # line 9" in result.output
    assert "loop.py:7 hoistable = False: " in result.output
    assert "would have made the host wait" in result.output


def test_a_module_is_run_as_the_main_program(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "looping"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--step-function", "__main__:denoise"]):
        document = run_json("-m", "looping", *words, "--", "2")
        assert by_line(document)[9][:2] == ("scalar_read", 2)
        assert document["sites"][0]["file"] == os.path.join("looping", "__main__.py")


def test_capturable_names_the_sites_in_the_way(script: str, tmp_path: Path) -> None:
    document = run_json("--capturable", "--step-module", "Model", script, "--", "2", status=1)
    assert document["capturable"] is False
    assert [words.split(":")[-1] for words in sorted(document["capture_blockers"])] == [
        "7 truth_value",
        "9 scalar_read",
    ]
    result = run("--capturable", script, "--", "0")
    assert result.exit_code == 0
    assert "capturable: nothing of the covered kinds" in result.output
    late = tmp_path / "late.py"
    late.write_text(
        "import torch\nfrom omni_platforms import audit\ndevice = 'cpu'\n"
        "with audit.step():\n"
        "    torch.tensor([1.0]).to(device, non_blocking=True)\n"
        "torch.ones(1).item()\n"  # outside the step
    )
    result = run("--capturable", str(late))
    assert result.exit_code == 1
    assert "in the way (1):" in result.output
    assert "late.py:5 h2d_pageable_async" in result.output


def test_the_page_shows_the_source_and_escapes_it(script: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run(script, "--html", str(page), "--step-module", "Model", "--", "2").exit_code == 0
    text = page.read_text()
    assert "if (latent &lt; -1).any():  # line 7" in text
    assert "truth_value x2" in text
    assert "<script" not in text
    assert "http" not in text


def test_two_runs_are_compared(script: str, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(run("--json", script, "--step-module", "Model", "--", "5").stdout)
    fixed = tmp_path / "fixed.py"
    fixed.write_text(Path(script).read_text().replace("latent.sum().item()", "latent.sum()"))
    words = ["--baseline", str(before), "--step-module", "Model"]
    comparison = run_json(*words, str(fixed), "--", "5")["comparison"]
    assert comparison["count"] == {"before": 10, "after": 5}
    assert comparison["kinds"]["scalar_read"] == {"before": 5, "after": 0}
    assert comparison["outputs"] == "equal"
    assert comparison["comparable"] is True
    assert comparison["step_time"] in {"faster", "slower", "within the spread"}
    assert comparison["wall_s"]["before"] > 0
    wrong = tmp_path / "wrong.py"
    wrong.write_text(Path(script).read_text().replace("latent + number", "latent + number * 2"))
    result = run(*words, str(wrong), "--", "5")
    assert result.exit_code == 1
    assert "outputs      different" in result.output
    comparison = run_json(*words, script, "--", "4", status=1)["comparison"]
    assert comparison["comparable"] is False


@pytest.mark.parametrize(
    ("text", "says"),
    [("{}", "is no audit"), ("[", "cannot be read"), (None, "cannot be read")],
)
def test_a_bad_baseline_is_refused_before_the_program_runs(
    script: str, tmp_path: Path, text: str | None, says: str
) -> None:
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    result = run("--baseline", str(path), script, "--", "1")
    assert says in str(result.exception)
    assert "the program's own words" not in result.output


def test_a_program_that_fails_is_reported_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import torch\ntorch.ones(1).item()\nraise LookupError('gone')\n")
    result = run(str(path))
    assert result.exit_code == 1
    assert "LookupError: gone" in result.output
    assert "fails.py:2" in result.output
    path.write_text("import sys\nsys.exit(0)\n")
    assert run(str(path)).exit_code == 0
    path.write_text("import sys\nsys.exit(7)\n")
    assert run(str(path)).exit_code == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a script"),
        (["--step-function", "a:b", "--step-module", "C", "x.py"], "exclude each other"),
        (["--max-syncs", "-1", "x.py"], "max-syncs"),
        (["--no-such", "x.py"], "no-such"),
    ],
)
def test_wrong_usage_is_exit_status_2(words: list[str], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.py"], "no script"),
        (["-m", "no_such_module_here", "--step-function", "__main__:f"], "no module"),
        (["--step-function", "no_such_module_here:f", __file__], "no_such_module_here"),
        (["--step-function", "json:nothing", __file__], "no function 'nothing'"),
        (["--step-function", "json", __file__], "package.module:function"),
        (["--step-function", "__main__:nothing", __file__], "no function 'nothing'"),
        (["--step-function", "__main__:Nobody", __file__], "is a class"),
    ],
)
def test_what_cannot_be_run_is_named(words: list[str], says: str) -> None:
    result = run(*words)
    assert says in str(result.exception), result.output
    assert result.exit_code == 1


class Nobody:
    pass


def test_a_step_that_never_comes_is_a_failure(script: str) -> None:
    result = run("--step-module", "Nothing", script, "--", "1")
    assert result.exit_code == 1
    assert "no step was seen" in result.output


@pytest.mark.simulated
def test_the_toy_loop_as_a_program_on_a_simulated_device() -> None:
    """In a process of its own, under the vendor's own platform, chosen as always."""
    words = [
        "audit",
        "--json",
        "--detail",
        "counts",
        "--max-syncs",
        "2",
        "-m",
        "tests.audit.toy_loop",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "omni_platforms", *words, "--", "musa", "3"],
        env=os.environ | {"OMNI_SIMULATE": "musa", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert (document["platform"], document["mode"], document["steps"]) == ("musa", "device", 3)
    found: Counter[Any] = Counter()
    for site in document["sites"]:
        if site["per_step"]:  # the loop's tensors are made outside its steps
            assert site["file"] == os.path.join("tests", "audit", "toy_loop.py")
            found[site["line"], site["kind"]] += site["per_step"]
    assert found == toy_loop.expected(device=True)


def test_every_other_option_changes_what_is_reported(script: str) -> None:
    full = run_json(script, "--", "1")
    counts = run_json("--detail", "counts", script, "--", "1")
    assert (full["detail"], counts["detail"]) == ("full", "counts")
    inside = "copies inside operators are not covered"
    assert [any(inside in note for note in each["notes"]) for each in (full, counts)] == [0, 1]
    assert full["runtime_events"] is None
    assert run_json("--profile", script, "--", "1")["runtime_events"] is not None


def test_the_cpu_is_taken_as_device_where_one_is_there_when_asked(sim, script: str) -> None:
    set_current_platform(sim.platform)
    assert run_json(script, "--", "1")["count"] == 0  # the script's tensors are the CPU's
    document = run_json("--cpu-as-device", script, "--", "1")
    assert (document["mode"], document["count"]) == ("cpu-as-device", 2)
