"""The platform of this process: chosen once, told to children, and undone cleanly."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omni_platforms
from omni_platforms import (
    AmbiguousPlatformError,
    BrokenPluginError,
    OmniPlatform,
    PlatformError,
    PlatformUnavailableError,
    SettingError,
    UnknownPlatformError,
    current_platform,
    reset_platform,
    set_current_platform,
)
from omni_platforms.platform import CpuPlatform, ProbeStatus, discover
from omni_platforms.platform.discovery import known_names
from tests.fake_plugins import creating, good, probing, run_python, was_imported, write_plugin

Install = Callable[..., Path]
VARIABLE = "OMNI_PLATFORM"


def test_without_an_accelerator_it_is_the_cpu_and_children_are_told() -> None:
    assert current_platform().is_cpu()
    assert current_platform() is current_platform()
    child = [sys.executable, "-c", "import os; print(os.environ['OMNI_PLATFORM'])"]
    assert subprocess.check_output(child, text=True).strip() == "cpu"
    reset_platform()
    assert VARIABLE not in os.environ


def test_the_one_available_accelerator_is_chosen(plugins: Install) -> None:
    plugins("one")
    assert current_platform().name == "one"
    assert os.environ[VARIABLE] == "one"


def test_a_request_imports_only_that_plugin_and_exports_nothing(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plugins("one")
    plugins("two")
    monkeypatch.setenv(VARIABLE, "two")
    assert current_platform().name == "two"
    assert not was_imported(folder, "fake_one")
    reset_platform()
    assert os.environ[VARIABLE] == "two"


def test_a_request_for_the_cpu_imports_no_plugin(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plugins("one")
    monkeypatch.setenv(VARIABLE, " CPU ")
    assert current_platform().is_cpu()
    assert not was_imported(folder, "fake_one")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("gone", PlatformUnavailableError),
        ("bad", BrokenPluginError),
        ("god", UnknownPlatformError),
        ("off", PlatformUnavailableError),
        ("what?", SettingError),
    ],
)
def test_a_request_that_cannot_be_met_is_never_a_fallback(
    plugins: Install, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    plugins("good")
    plugins("off")
    plugins("gone", probing("gone", "return Probe('gone', ProbeStatus.ABSENT, 'no device')"))
    plugins("bad", probing("bad", "raise SystemExit(1)"))
    monkeypatch.setenv("OMNI_PLATFORMS_DISABLE", "off")
    monkeypatch.setenv(VARIABLE, name)
    for _ in range(2):
        with pytest.raises(error):
            current_platform()
    assert os.environ[VARIABLE] == name


def test_two_available_are_ambiguous_until_one_is_disabled(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins("one")
    plugins("two")
    with pytest.raises(AmbiguousPlatformError, match=r"one \(fake-one 1\.0\), two"):
        current_platform()
    assert VARIABLE not in os.environ
    monkeypatch.setenv("OMNI_PLATFORMS_DISABLE", "two")
    assert current_platform().name == "one"


def test_a_broken_plugin_is_warned_about_once(
    plugins: Install, caplog: pytest.LogCaptureFixture
) -> None:
    plugins("bad", probing("bad", "raise ImportError('no libfoo')"))
    for _ in range(3):
        assert current_platform().is_cpu()
        reset_platform()
    (record,) = [r for r in caplog.records if r.name == "omni_platforms.platform.selection"]
    assert record.levelno == logging.WARNING
    for word in ("'bad'", "fake-bad 1.0", "no libfoo", "OMNI_PLATFORMS_DISABLE=bad"):
        assert word in record.getMessage()


def test_the_warning_reaches_stderr_where_nobody_configured_logging(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", probing("bad", "raise AssertionError('boom')"))
    done = run_python(
        "from omni_platforms import current_platform; print(current_platform().name)", tmp_path
    )
    assert done.stdout == "cpu\n"
    assert "boom" in done.stderr


def test_strict_makes_it_an_error(plugins: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins("bad", probing("bad", "raise ImportError('no libfoo')"))
    monkeypatch.setenv("OMNI_PLATFORM_STRICT", "1")
    with pytest.raises(BrokenPluginError, match="no libfoo"):
        current_platform()


@pytest.mark.parametrize(
    ("body", "word", "cause"),
    [
        ("return None", "None", None),
        ("return 'a platform'", "not an OmniPlatform", None),
        ("raise ImportError('no sdk')", "no sdk", ImportError),
        ("raise SystemExit(4)", "SystemExit", SystemExit),
        ("from omni_platforms.platform import CpuPlatform; return CpuPlatform()", "'cpu'", None),
    ],
)
def test_a_plugin_that_makes_no_platform_is_broken(
    plugins: Install, body: str, word: str, cause: type[BaseException] | None
) -> None:
    plugins("one", creating("one", body))
    with pytest.raises(BrokenPluginError, match=r"fake-one 1\.0") as caught:
        current_platform()
    assert word in str(caught.value)
    assert cause is None or isinstance(caught.value.__cause__, cause)
    assert VARIABLE not in os.environ


def test_the_users_interrupt_during_creation_passes(plugins: Install) -> None:
    plugins("one", creating("one", "raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        current_platform()


def test_a_plugin_that_asks_for_the_platform_it_makes_is_told(plugins: Install) -> None:
    body = "import omni_platforms; return omni_platforms.current_platform()"
    plugins("one", creating("one", body))
    with pytest.raises(PlatformError, match="must not ask"):
        current_platform()


def test_threads_that_come_at_once_get_one_platform(plugins: Install) -> None:
    plugins("one", probing("one", "import time; time.sleep(0.05)"))
    barrier = threading.Barrier(8)

    def ask() -> OmniPlatform:
        barrier.wait()
        return current_platform()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(), range(8)))
    assert len({id(platform) for platform in found}) == 1


def test_every_accessor_follows_a_reset(plugins: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    from omni_platforms import platform

    plugins("one")
    plugins("two")
    for name in ("one", "two"):
        monkeypatch.setenv(VARIABLE, name)
        reset_platform()
        for accessor in (
            omni_platforms.current_platform,
            platform.current_platform,
            current_platform,
        ):
            assert accessor().name == name
        with omni_platforms.AsyncOutputExecutor() as outputs:
            assert outputs.platform.name == name


def test_set_takes_an_automatic_choice_back_and_exports_none(plugins: Install) -> None:
    plugins("one")
    assert current_platform().name == "one"
    mine = CpuPlatform()
    set_current_platform(mine)
    assert current_platform() is mine
    assert VARIABLE not in os.environ
    with pytest.raises(TypeError, match="reset_platform"):
        set_current_platform(None)  # type: ignore[arg-type]


def test_reset_undoes_exactly_what_the_choice_did(
    plugins: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins("one")
    monkeypatch.setenv(VARIABLE, "")  # blank means automatic
    current_platform()
    assert os.environ[VARIABLE] == "one"
    reset_platform()
    assert os.environ[VARIABLE] == ""
    current_platform()
    os.environ[VARIABLE] = "cpu"  # somebody else's will
    reset_platform()
    assert os.environ[VARIABLE] == "cpu"


def test_a_fork_while_another_thread_chooses_does_not_block_the_child(tmp_path: Path) -> None:
    done = run_python(
        """
        import os, signal, threading
        from omni_platforms import current_platform
        from omni_platforms.platform import selection
        held, release = threading.Event(), threading.Event()
        def hold():
            with selection._lock:
                held.set()
                release.wait(30)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if current_platform().is_cpu() else 1)
        _, status = os.waitpid(child, 0)
        release.set()
        thread.join()
        raise SystemExit(status)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_the_simulated_name_is_available_with_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sim" not in known_names()
    monkeypatch.setenv("OMNI_SIMULATE", "sim")
    monkeypatch.setenv("OMNI_SIMULATE_DEVICES", "5")
    (report,) = discover(only="sim")
    assert (report.status, report.device_count) == (ProbeStatus.AVAILABLE, 5)
    assert "sim" in known_names()


def test_a_vendors_plugin_is_available_when_its_name_is_simulated(
    plugins: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = good("acme").replace("ProbeStatus.AVAILABLE", "ProbeStatus.ABSENT")
    plugins("acme", absent)
    plugins("other", good("other").replace("ProbeStatus.AVAILABLE", "ProbeStatus.ABSENT"))
    monkeypatch.setenv("OMNI_SIMULATE", "acme")
    found = {report.name: report for report in discover()}
    assert found["acme"].status is ProbeStatus.AVAILABLE
    assert found["acme"].reason == "simulated, as OMNI_SIMULATE asks"
    assert found["other"].status is ProbeStatus.ABSENT


def test_the_simulated_name_chooses_and_omni_platform_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMNI_SIMULATE", "nothing")
    with pytest.raises(UnknownPlatformError, match="OMNI_SIMULATE=nothing: no plugin"):
        current_platform()
    monkeypatch.setenv(VARIABLE, "cpu")
    assert current_platform().is_cpu()
    assert os.environ[VARIABLE] == "cpu"
