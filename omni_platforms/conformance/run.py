"""Runs the suite in a process of its own, and returns its report however that ends."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omni_platforms.conformance.read import read_report
from omni_platforms.conformance.record import Report
from omni_platforms.conformance.recovery import recover
from omni_platforms.conformance.write import JSON_FILE
from omni_platforms.errors import ConformanceSetupError

_INI = Path(__file__).with_name("pytest.ini")
_PLUGINS = ("omni_platforms.conformance.plugin", "omni_platforms.conformance.journal")
_STDERR = 2
_WRONG_USAGE = 4
"""pytest's exit status for options that it refuses."""
_GRACE_S = 10.0
"""How long a process that is asked to end may take."""


@dataclass(frozen=True)
class Request:
    """What `omni-platforms conform` was asked for."""

    platform: str
    tiers: str | None = None
    """As `--omni-tier` takes them: "T2", or "T0-T3"."""
    require_device: bool = False
    keep_going: bool = False
    simulate: str | None = None
    """The name of the device to simulate, or `None` to leave that to the environment."""
    timeout: float = 1800.0
    """Seconds for the whole run."""


class WrongUsageError(Exception):
    """The suite refused an option; it has said why on standard error."""


def require_pytest() -> None:
    """Raise `ConformanceSetupError` with the remedy where the suite's dependencies are missing."""
    needed = ["pytest"] if sys.version_info >= (3, 11) else ["pytest", "tomli"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConformanceSetupError(
            f"the conformance suite needs {' and '.join(missing)}, not installed here: "
            "run pip install 'omni-platforms[conformance]'"
        )


def run_suite(request: Request) -> Report:
    """Run the suite and return its report. Blocks for at most `request.timeout` seconds.

    The suite's own output goes to standard error. A run that crashes or hangs has
    a report too: the test that ran is an error, the rest is blocked. Raises
    `WrongUsageError`, and `ConformanceSetupError` when not even the first test ran.
    """
    require_pytest()
    with tempfile.TemporaryDirectory(prefix="omni-conform-") as name:
        folder = Path(name)
        status = _run(_command(request, folder), _environment(request), request.timeout)
        if status == _WRONG_USAGE:
            raise WrongUsageError
        if (folder / JSON_FILE).is_file() and status in (0, 1):
            return read_report(folder)
        return _recovered(folder / "journal", _ending(status, request.timeout))


def _command(request: Request, folder: Path) -> list[str]:
    options = {
        "--omni-platform": request.platform,
        "--omni-report": str(folder),
        "--omni-journal": str(folder / "journal"),
        "--omni-tier": request.tiers,
    }
    flags = {"--require-device": request.require_device, "--omni-keep-going": request.keep_going}
    plugins = [argument for plugin in _PLUGINS for argument in ("-p", plugin)]
    given = [argument for key, value in options.items() if value for argument in (key, value)]
    return [
        *(sys.executable, "-m", "pytest", "-c", str(_INI), *plugins),
        *("--pyargs", "omni_platforms.conformance", *given),
        *(flag for flag, wanted in flags.items() if wanted),
    ]


def _environment(request: Request) -> Mapping[str, str]:
    """Return this environment, without what would make another run of it elsewhere."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS",)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if request.simulate is not None:
        environment["OMNI_SIMULATE"] = request.simulate
    return environment


def _run(command: list[str], environment: Mapping[str, str], timeout: float) -> int | None:
    """Return the exit status, negative for a signal, or `None` when the time was up."""
    with _ending_on_sigterm(), _group(command, environment) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None


@contextlib.contextmanager
def _group(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own, of which nothing is left at the end."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=_STDERR, start_new_session=True
    )
    try:
        yield process
    finally:
        _end(process)


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM (a cancelled CI job) end this process in order, so that the group ends too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: politely, so that a stack trace is printed, then for good."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _ending(status: int | None, timeout: float) -> str:
    if status is None:
        return f"the run was ended after {timeout:g} s (--timeout)"
    if status < 0:
        return f"the process was killed by {_signal_name(-status)}"
    return f"the process ended with status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _recovered(journal: Path, ending: str) -> Report:
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
    report = recover(lines, ending)
    if report is None:
        raise ConformanceSetupError(
            f"the suite did not begin: {ending}. Its own words are above, on standard error; "
            "`omni-platforms doctor` tries the platform step by step."
        )
    return report
