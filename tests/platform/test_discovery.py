"""Every plugin is found and judged by itself, whatever another one does."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omni_platforms import SettingError
from omni_platforms.platform import ProbeStatus, discover, plugin_entries
from omni_platforms.platform.discovery import known_names
from tests.fake_plugins import good, probing, run_python, was_imported, write_plugin

Install = Callable[..., Path]
Rows = dict[str, dict[str, object]]

ERRORS = (
    "ImportError('no libfoo')",
    "AttributeError('foo')",
    "AssertionError()",
    "KeyError('libfoo.so')",
    "SystemExit(3)",
    "KeyboardInterrupt()",
)
LIST = """
import json
from omni_platforms.platform import discover
print(json.dumps([report.row() for report in discover()]))
"""


def rows_of(*folders: Path, before: str = "", **variables: str) -> Rows:
    done = run_python(before + LIST, *folders, **variables)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def assert_only_it_is_broken(rows: Rows, name: str, *words: str) -> None:
    assert rows[name]["status"] == "BROKEN", rows[name]
    for word in words:
        assert word in str(rows[name]["reason"])
    assert rows["fine"]["status"] == "AVAILABLE"
    assert rows["cpu"]["status"] == "AVAILABLE"


def test_what_a_good_plugin_says_is_what_is_reported(tmp_path: Path) -> None:
    rows = rows_of(write_plugin(tmp_path, "fine", version="2.1"))
    assert rows["fine"] == {
        "name": "fine",
        "status": "AVAILABLE",
        "reason": "two of them",
        "device_count": 2,
        "distribution": "fake-fine",
        "version": "2.1",
        "versions": {"sdk": "3.4"},
    }


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("stage", ["importing", "probe"])
def test_a_plugin_that_raises_harms_no_other(tmp_path: Path, error: str, stage: str) -> None:
    source = f"raise {error}" if stage == "importing" else probing("bad", f"raise {error}")
    write_plugin(tmp_path, "bad", source)
    write_plugin(tmp_path, "fine")
    assert_only_it_is_broken(rows_of(tmp_path), "bad", stage, error.partition("(")[0])


def test_a_loader_that_loses_system_exit_would_be_seen(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", probing("bad", "raise SystemExit(3)"))
    write_plugin(tmp_path, "fine")
    planted = """
from omni_platforms.platform import deadline

def only_exceptions(function, outcome):
    try:
        outcome.value = function()
    except Exception as error:
        outcome.error = error
    outcome.finished = True

deadline._attempt = only_exceptions
"""
    rows = rows_of(tmp_path, before=planted, OMNI_PROBE_TIMEOUT="0.5")
    with pytest.raises(AssertionError):
        assert_only_it_is_broken(rows, "bad", "SystemExit")


@pytest.mark.parametrize("stage", ["importing", "probe"])
def test_a_plugin_that_hangs_costs_its_deadline_and_no_more(tmp_path: Path, stage: str) -> None:
    sleep = "import time; time.sleep(10)"
    write_plugin(tmp_path, "bad", sleep if stage == "importing" else probing("bad", sleep))
    write_plugin(tmp_path, "fine")
    start = time.monotonic()
    rows = rows_of(tmp_path, OMNI_PROBE_TIMEOUT="0.4")
    assert time.monotonic() - start < 8
    assert_only_it_is_broken(rows, "bad", stage, "0.4 s", "OMNI_PROBE_TIMEOUT")


def test_prints_are_kept_from_stdout_and_told_with_the_plugins_name(tmp_path: Path) -> None:
    chatty = "print('at import')\n" + probing("chatty", "print('at probe')")
    write_plugin(tmp_path, "chatty", chatty)
    done = run_python(LIST, tmp_path)
    json.loads(done.stdout)
    for word in ("chatty", "fake-chatty 1.0", "at import", "at probe"):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("None", "None"),
        ("'AVAILABLE'", "not a Probe"),
        ("Probe('other', ProbeStatus.ABSENT)", "'other'"),
        ("Probe('bad', 'AVAILABLE', device_count=1)", "TypeError"),
        ("Probe('bad', ProbeStatus.AVAILABLE)", "ValueError"),
        ("Probe('bad', ProbeStatus.ABSENT, versions=3)", "AttributeError"),
    ],
)
def test_a_probe_that_answers_nonsense_is_broken(tmp_path: Path, answer: str, word: str) -> None:
    write_plugin(tmp_path, "bad", probing("bad", f"return {answer}"))
    write_plugin(tmp_path, "fine")
    assert_only_it_is_broken(rows_of(tmp_path), "bad", word)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("x = 1", "omni_platforms_probe and no omni_platforms_create"),
        (good("bad").replace("@hookimpl\ndef omni_platforms_create", "def f"), "_create"),
        (good("bad").replace("create(name)", "create(nom)"), "nom"),
        ("class Rude(Exception):\n    def __str__(self): raise OSError\nraise Rude", "Rude"),
    ],
)
def test_a_plugin_without_the_hooks_is_broken(tmp_path: Path, source: str, word: str) -> None:
    write_plugin(tmp_path, "bad", source)
    write_plugin(tmp_path, "fine")
    assert_only_it_is_broken(rows_of(tmp_path), "bad", word)


def test_an_entry_that_names_nothing_is_broken(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", value="nowhere.to_be:found")
    write_plugin(tmp_path, "fine")
    assert_only_it_is_broken(rows_of(tmp_path), "bad", "nowhere", "ModuleNotFoundError")


def test_a_hook_wrapper_reaches_no_other_plugin(tmp_path: Path) -> None:
    wrapper = """
    from omni_platforms.platform import hookimpl

    @hookimpl(wrapper=True)
    def omni_platforms_probe():
        yield
        return ["spoiled"]

    @hookimpl
    def omni_platforms_create(name):
        raise SystemExit
    """
    write_plugin(tmp_path, "bad", wrapper)
    write_plugin(tmp_path, "fine")
    assert_only_it_is_broken(rows_of(tmp_path), "bad")


def test_two_distributions_with_one_name_are_both_named_and_not_loaded(tmp_path: Path) -> None:
    write_plugin(tmp_path, "twin", distribution="fake_a", version="1.0")
    write_plugin(tmp_path, "twin", distribution="fake_b", version="2.0")
    write_plugin(tmp_path, "fine")
    rows = rows_of(tmp_path)
    assert_only_it_is_broken(
        rows, "twin", "fake-a 1.0", "fake-b 2.0", "uninstall", "OMNI_PLATFORMS_DISABLE=twin"
    )
    assert not was_imported(tmp_path, "fake_a")
    assert not was_imported(tmp_path, "fake_b")


def test_a_distribution_that_is_on_the_path_twice_counts_once(tmp_path: Path) -> None:
    first = write_plugin(tmp_path / "first", "fine", version="1.0")
    second = write_plugin(tmp_path / "second", "fine", version="0.9")
    rows = rows_of(first, second)
    assert (rows["fine"]["status"], rows["fine"]["version"]) == ("AVAILABLE", "1.0")


def test_nobody_can_claim_the_cpu(plugins: Install) -> None:
    folder = plugins("cpu", distribution="fake_claim")
    claim, own = [report for report in discover() if report.name == "cpu"]
    assert (claim.status, claim.distribution) == (ProbeStatus.BROKEN, "fake-claim")
    assert (own.status, own.distribution) == (ProbeStatus.AVAILABLE, "omni-platforms")
    assert not was_imported(folder, "fake_claim")


@pytest.mark.parametrize("name", ["Upper", "a.b", "a b"])
def test_a_name_that_nobody_can_select_is_broken(plugins: Install, name: str) -> None:
    plugins(name, distribution="fake_odd")
    (report,) = [report for report in discover() if report.name == name]
    assert report.status is ProbeStatus.BROKEN
    assert "rename" in report.reason


def test_the_order_of_entry_points_changes_nothing(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins("b", good("b"))
    plugins("a", probing("a", "raise ImportError('x')"))
    plugins("twin", distribution="fake_t1")
    plugins("twin", distribution="fake_t2")
    installed = [
        distribution
        for distribution in importlib.metadata.distributions()
        if distribution.metadata["Name"].startswith("fake-")
    ]
    seen = set()
    for order in itertools.permutations(installed):
        monkeypatch.setattr(plugin_entries, "distributions", lambda order=order: iter(order))
        seen.add(json.dumps([report.row() for report in discover()]))
    assert len(seen) == 1
    assert [row["name"] for row in json.loads(seen.pop())] == ["a", "b", "twin", "cpu"]


def test_unreadable_metadata_hides_no_other_plugin(tmp_path: Path) -> None:
    write_plugin(tmp_path, "fine")
    damaged = tmp_path / "damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "entry_points.txt").write_bytes(b"[omni_platforms]\n\xff\xfe = \xff\nx\n")
    done = run_python(LIST, tmp_path)
    assert {row["name"] for row in json.loads(done.stdout)} >= {"fine", "cpu"}
    assert "damaged" in done.stderr


def test_disabled_plugins_are_shown_and_not_imported(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plugins("a")
    plugins("b")
    monkeypatch.setenv("OMNI_PLATFORMS_DISABLE", "A, cpu")
    reports = {report.name: report for report in discover()}
    assert reports["a"].status is reports["cpu"].status is ProbeStatus.ABSENT
    assert "OMNI_PLATFORMS_DISABLE" in reports["a"].reason
    assert reports["b"].status is ProbeStatus.AVAILABLE
    assert not was_imported(folder, "fake_a")


def test_only_one_plugin_is_imported_when_only_one_is_asked_for(plugins: Install) -> None:
    folder = plugins("a")
    plugins("b")
    assert [report.name for report in discover(only="b")] == ["b"]
    assert not was_imported(folder, "fake_a")
    assert {"a", "b", "cpu", "cuda"} <= set(known_names())


def test_a_bad_timeout_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PROBE_TIMEOUT", "soon")
    with pytest.raises(SettingError, match="OMNI_PROBE_TIMEOUT"):
        discover()
