"""A vendor's first hour: `new`, and the example that it grew into."""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omni_platforms.conformance import new_plugin
from omni_platforms.conformance.known_failures import read_known_failures
from omni_platforms.conformance.new_plugin import check_name, write_plugin
from omni_platforms.errors import PluginNameError
from omni_platforms.settings import SETTINGS
from tests.environments import ROOT, Environment, build_wheel
from tests.fake_plugins import run_cli

EXAMPLE = ROOT / "examples" / "omni_platforms_acme"
SUITE = ROOT / "omni_platforms" / "conformance" / "suite"
TEMPLATE = ROOT / "omni_platforms" / "conformance" / "template"


def installed(project: Path, folder: Path) -> Path:
    """Build a project's wheel, install it into a folder of its own, and return that."""
    wheel = build_wheel(project, folder / "dist")
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    site = folder / "site"
    subprocess.run([*install, "--target", str(site), str(wheel)], check=True, timeout=90)
    return site


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `new acme_two` writes."""
    into = tmp_path_factory.mktemp("work")
    made = run_cli("new", "acme_two", "--into", str(into), "--json")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    project = into / "omni-platforms-acme-two"
    assert document["project"] == str(project)
    assert document["files"] == [str(f) for f in sorted(project.rglob("*")) if f.is_file()]
    assert len(document["files"]) == len(list(TEMPLATE.iterdir()))
    return project


@pytest.fixture(scope="module")
def site(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which its wheel is installed."""
    return installed(project, tmp_path_factory.mktemp("site"))


def test_a_new_plugin_is_discovered_and_passes_t0_at_once(project: Path, site: Path) -> None:
    rows = json.loads(run_cli("list", "--json", folders=(site,)).stdout)["platforms"]
    (row,) = [row for row in rows if row["name"] == "acme_two"]
    assert (row["status"], row["distribution"]) == ("ABSENT", "omni-platforms-acme-two")
    done = run_cli("conform", "acme_two", "--json", folders=(site,))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["tier_certified"] == "T0"
    assert not re.search("@[A-Z]+@", "".join(f.read_text() for f in project.rglob("*.*")))


@pytest.mark.slow
@pytest.mark.simulated
def test_a_new_platform_works_on_a_simulated_device_of_its_name(site: Path) -> None:
    """What the template leaves to torch is right: streams and events, unchanged."""
    arguments = ["conform", "acme_two", "--simulate", "--tier", "T2", "--json"]
    done = run_cli(*arguments, folders=(site,))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["mode"], report["tier_declared"]) == ("simulated", "T0")
    outcomes = {row["outcome"] for row in report["rows"] if row["tier"] == "T2"}
    assert outcomes == {"passed", "skipped"}


@pytest.mark.parametrize(
    "name", ["", "Acme", "9acme", "_acme", "acme_", "a__b", "acme-one", "../acme", "ac me", "é"]
)
def test_a_name_that_cannot_be_is_refused_with_the_rule(name: str, tmp_path: Path) -> None:
    with pytest.raises(PluginNameError, match="lower-case letters"):
        write_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.from_regex(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", fullmatch=True))
@settings(max_examples=30, deadline=None)
def test_every_name_that_is_taken_can_be_selected(name: str) -> None:
    assume(not keyword.iskeyword(name))
    check_name(name)
    assert SETTINGS["OMNI_PLATFORM"].parse(name) == name


@pytest.mark.parametrize("name", ["class", "cuda", "cpu", "sim"])
def test_a_taken_name_is_refused_by_the_command(name: str, tmp_path: Path) -> None:
    done = run_cli("new", name, "--into", str(tmp_path))
    assert done.returncode == 1
    assert f"the name '{name}' is taken" in done.stderr


def test_nothing_is_written_over_and_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_plugin("acme", tmp_path)
    (project / "README.md").write_text("mine")
    with pytest.raises(PluginNameError, match="is there already"):
        write_plugin("acme", tmp_path)
    assert (project / "README.md").read_text() == "mine"

    def full(project: Path, template: Path, name: str) -> None:
        (project / "half").mkdir(parents=True)
        raise OSError("No space left on device")

    monkeypatch.setattr(new_plugin, "_write", full)
    with pytest.raises(PluginNameError, match="No space left"):
        write_plugin("other", tmp_path)
    assert list(tmp_path.iterdir()) == [project]


def test_the_known_failure_that_the_template_shows_is_one(tmp_path: Path) -> None:
    """Its lines, uncommented, are a list that the suite reads, of a test that it has."""
    template = (TEMPLATE / "conformance.toml.in").read_text()
    lines = [line[2:] for line in template.splitlines() if re.match(r"# (\[\[|\w+ = )", line)]
    file = tmp_path / "conformance.toml"
    file.write_text("\n".join(lines))
    ((test, known),) = read_known_failures(file).items()
    module, _, function = test.partition("::")
    assert f"def {function}(" in (SUITE / module).read_text()
    assert known.kind == "notyet"


# The example ------------------------------------------------------------------


def test_the_example_is_what_new_writes_and_filled_in(tmp_path: Path) -> None:
    fresh = write_plugin("acme", tmp_path)
    names = {file.relative_to(fresh) for file in fresh.rglob("*") if file.is_file()}
    files = {file.relative_to(EXAMPLE) for file in EXAMPLE.rglob("*") if file.is_file()}
    assert {file for file in files if "__pycache__" not in file.parts} == names
    for same in ("pyproject.toml", "omni_platforms_acme/__init__.py"):
        assert (EXAMPLE / same).read_text() == (fresh / same).read_text()


@pytest.mark.slow  # CI runs all of it by `make example`
@pytest.mark.simulated
def test_the_example_runs_on_the_simulated_device_that_it_names(tmp_path: Path) -> None:
    """Its name is not the device's; all its tiers are the slow test's, and `make example`'s."""
    site = installed(EXAMPLE, tmp_path)
    done = run_cli("conform", "acme", "--simulate", "--tier", "T1", "--json", folders=(site,))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["platform"], report["mode"]) == ("acme", "simulated")
    assert {row["mode"] for row in report["rows"]} == {"simulated"}
    assert {row["outcome"] for row in report["rows"]} == {"passed"}


@pytest.mark.simulated
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_example_passes_all_tiers_from_its_wheel_outside_the_checkout(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    for project in (ROOT, EXAMPLE):
        environment.install(build_wheel(project, tmp_path / f"dist-{project.name}"))
    where = "import omni_platforms as core, omni_platforms_acme as acme; print(core, acme)"
    assert environment.run("-c", where, program="python").count(str(environment.folder)) == 2
    arguments = ["conform", "acme", "--simulate", "--report", "report", "--json"]
    report = json.loads(environment.run(*arguments, timeout=300))
    assert (report["mode"], report["tier_certified"]) == ("simulated", "T5")
    assert report["versions"]["omni-platforms-acme"] == "0.1.0"
    assert (environment.folder / "report" / "conformance.html").is_file()
