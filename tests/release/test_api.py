"""`make api-check` finds what a change breaks, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import omni_platforms
from tests.environments import ROOT
from tools import check_api

BEFORE = """
class Executor:
    def __init__(self, device=None, *, limit=4): ...
    def submit(self, output, borrow=False): ...
    def close(self): ...
    size: int
def choose(name): ...
"""


def breaks(old: str, new: str) -> list[str]:
    assert BEFORE.count(old) == 1
    return list(check_api.breakages({"a": BEFORE}, {"a": BEFORE.replace(old, new)}))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("    def close(self): ...\n", "", "a.Executor.close: Public object was removed"),
        ("def choose(name): ...\n", "", "a.choose: Public object was removed"),
        ("borrow=False", "", "a.Executor.submit: Parameter was removed"),
        ("borrow=False", "borrow=True", "a.Executor.submit: Parameter default was changed"),
        ("output, borrow=False", "borrow=False, output=None", "Positional parameter was moved"),
        ("choose(name)", "choose(name, strict)", "Parameter was added as required"),
        ("*, limit=4", "*, most=4", "a.Executor.__init__: Parameter was removed"),
        ("    size: int\n", "", "a.Executor.size: Public object was removed"),
    ],
)
def test_what_breaks_is_found(old: str, new: str, found: str) -> None:
    assert any(found in line for line in breaks(old, new)), breaks(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def choose(name): ...\n", "def choose(name): ...\ndef more(): ...\n"),
        ("borrow=False", "borrow=False, streams=None"),
        ("*, limit=4", "*, limit=4, more=None"),
        ("    size: int\n", "    size: int\n    more: int\n"),
    ],
)
def test_what_is_added_breaks_nothing(old: str, new: str) -> None:
    assert breaks(old, new) == []


def test_a_module_that_is_gone_breaks_all_that_it_had() -> None:
    assert len(list(check_api.breakages({"a": BEFORE}, {}))) == 2


def test_the_interface_is_read_off_the_source() -> None:
    stubs = check_api.read_interface(ROOT)
    public = {name for name in omni_platforms.__all__ if not name.startswith("__")}
    assert {line.partition(":")[0] for line in stubs["omni_platforms"].splitlines()} == public
    assert "def submit(self, output, on_device=None, on_host=None" in stubs["outputs"]
    assert "_waiter" not in stubs["outputs"]
    assert {"omni_platforms", "outputs"} <= set(check_api.read_record())


def test_every_module_of_the_reference_is_in_the_interface() -> None:
    assert {"outputs", "engine", "platform", "errors", "observe"} <= set(check_api.modules())


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose record has an interface, and whose source has none any more."""
    monkeypatch.setattr(check_api, "read_interface", lambda source: {"a": ""})
    monkeypatch.setattr(check_api, "RECORD", tmp_path / "api")
    monkeypatch.setattr(check_api, "ROOT", tmp_path)
    check_api.write_record({"a": BEFORE}, "0.1.0")
    return tmp_path


def test_what_breaks_is_a_failure(gone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_api.main([]) == 1
    assert "a.choose: Public object was removed" in capsys.readouterr().out


def test_what_breaks_is_told_though_the_changelog_announces_it(
    gone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone / "changelog.d").mkdir()
    (gone / "changelog.d" / "+chooser.breaking.md").touch()
    assert check_api.main([]) == 0
    assert "a.choose" in capsys.readouterr().out


def test_before_the_first_release_it_is_told_and_no_failure(
    gone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone / "api" / "RELEASE").unlink()
    assert check_api.main([]) == 0
    assert "a.choose" in capsys.readouterr().out


def test_the_record_is_the_present_interface_once_it_is_written(gone: Path) -> None:
    assert check_api.main(["--write", "0.2.0"]) == 0
    assert (gone / "api" / "RELEASE").read_text() == "0.2.0\n"
    assert check_api.main([]) == 0
