"""`list`, `env`, and what all commands share: exit status, errors, clean JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import omni_platforms
from omni_platforms.cli import main
from omni_platforms.settings import SETTINGS
from tests.fake_plugins import probing, run_cli, was_imported, write_plugin

FIELDS = {
    "name",
    "status",
    "reason",
    "device_count",
    "distribution",
    "version",
    "versions",
    "selected",
}
NOISY = """
import ctypes, os, sys
print("python")
os.write(1, b"descriptor\\n")
libc = ctypes.CDLL(None)
libc.printf(b"buffered by C until exit\\n")
sys.__stdout__.write("the original stream\\n")
"""


def listed(folder: Path, **variables: str) -> dict[str, dict[str, object]]:
    done = run_cli("list", "--json", folders=(folder,), **variables)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["platforms"]}


def test_list_gives_the_fields_that_others_rely_on(tmp_path: Path) -> None:
    rows = listed(write_plugin(tmp_path, "fine"))
    assert all(set(row) == FIELDS for row in rows.values())
    assert [name for name, row in rows.items() if row["selected"]] == ["fine"]


@pytest.mark.parametrize("name", ["cpu", "one", "two"])
def test_list_shows_what_would_be_selected_and_still_everything(tmp_path: Path, name: str) -> None:
    write_plugin(tmp_path, "one")
    write_plugin(tmp_path, "two")
    rows = listed(tmp_path, OMNI_PLATFORM=name)
    assert set(rows) >= {"one", "two", "cpu", "cuda"}
    assert [row["name"] for row in rows.values() if row["selected"]] == [name]


def test_list_says_why_nothing_is_selected(tmp_path: Path) -> None:
    write_plugin(tmp_path, "one")
    write_plugin(tmp_path, "two")
    done = run_cli("list", folders=(tmp_path,))
    assert done.returncode == 0
    assert "Several accelerators" in done.stderr
    assert "*" not in done.stdout


def test_list_creates_no_platform_and_imports_nothing_disabled(tmp_path: Path) -> None:
    write_plugin(tmp_path, "off")
    rows = listed(tmp_path, OMNI_PLATFORMS_DISABLE="off")
    assert rows["off"]["status"] == "ABSENT"
    assert not was_imported(tmp_path, "fake_off")


def test_a_noisy_plugin_leaves_one_json_document_on_stdout(tmp_path: Path) -> None:
    write_plugin(tmp_path, "noisy", NOISY + probing("noisy", NOISY))
    done = run_cli("list", "--json", folders=(tmp_path,))
    assert {row["name"] for row in json.loads(done.stdout)["platforms"]} >= {"noisy", "cpu"}
    for word in ("python", "descriptor", "buffered by C", "the original stream"):
        assert word in done.stderr
        assert word not in done.stdout


def test_without_the_discipline_the_noise_would_be_seen(tmp_path: Path) -> None:
    write_plugin(tmp_path, "noisy", NOISY + probing("noisy", NOISY))
    done = run_cli("list", folders=(tmp_path,))
    assert "descriptor" in done.stdout


def test_json_goes_to_whoever_captures_a_command_in_this_process() -> None:
    done = CliRunner().invoke(main, ["env", "--json"])
    assert {row["name"] for row in json.loads(done.stdout)["settings"]} == set(SETTINGS)


def test_strict_fails_the_list_of_a_broken_plugin_and_still_shows_it(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", probing("bad", "raise AssertionError('boom')"))
    done = run_cli("list", "--json", folders=(tmp_path,), OMNI_PLATFORM_STRICT="1")
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)["platforms"]}
    assert (rows["bad"]["status"], "boom" in rows["bad"]["reason"]) == ("BROKEN", True)
    assert not any(row["selected"] for row in rows.values())


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_a_refused_setting_is_one_line_and_exit_1(tmp_path: Path, command: str) -> None:
    done = run_cli(command, "--json", folders=(tmp_path,), OMNI_PROBE_TIMEOUT="soon")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("omni-platforms: error: OMNI_PROBE_TIMEOUT='soon'")


def test_env_shows_every_setting_with_its_source(tmp_path: Path) -> None:
    done = run_cli("env", "--json", folders=(tmp_path,), OMNI_PLATFORMS_DISABLE="a,b")
    rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
    assert rows["OMNI_PLATFORMS_DISABLE"]["value"] == ["a", "b"]
    assert rows["OMNI_PLATFORMS_DISABLE"]["source"] == "environment"
    assert rows["OMNI_PROBE_TIMEOUT"]["source"] == "default"
    assert rows["OMNI_PROBE_TIMEOUT"]["value"] == SETTINGS["OMNI_PROBE_TIMEOUT"].default
    text = run_cli("env", folders=(tmp_path,)).stdout
    for name, setting in SETTINGS.items():
        assert name in text
        assert setting.meaning.split(".")[0] in " ".join(text.split())


def test_env_names_every_bad_value_and_exits_1(tmp_path: Path) -> None:
    bad = {"OMNI_PROBE_TIMEOUT": "-1", "OMNI_PLATFORM_STRICT": "maybe"}
    done = run_cli("env", "--json", folders=(tmp_path,), **bad)
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
    for name, text in bad.items():
        assert rows[name]["value"] == text
        assert name in rows[name]["error"]
        assert name in done.stderr


@pytest.mark.parametrize("arguments", [["nothing"], ["list", "--nothing"], ["env", "extra"]])
def test_wrong_usage_is_2(tmp_path: Path, arguments: list[str]) -> None:
    assert run_cli(*arguments, folders=(tmp_path,)).returncode == 2


def test_version(tmp_path: Path) -> None:
    done = run_cli("--version", folders=(tmp_path,))
    assert done.stdout == f"omni-platforms, version {omni_platforms.__version__}\n"
