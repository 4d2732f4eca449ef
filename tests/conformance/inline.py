"""Runs the suite inside a test's own process, on a plugin that the test writes."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from omni_platforms.conformance.plugin import NAME as PLUGIN
from omni_platforms.conformance.plugin import session_of
from omni_platforms.conformance.record import Outcome, Report

NAME = "acme"
SUITE = Path(__file__).parents[2] / "omni_platforms" / "conformance" / "suite"
_numbers = itertools.count()
# Most of what a run of pytest costs is what it does besides; the rows say everything here.
_OFF = (
    "cacheprovider", "terminal", "junitxml", "pastebin", "doctest", "unittest", "logging",
    "faulthandler", "unraisableexception", "threadexception", "setuponly", "setupplan", "stepwise",
    "legacypath", "debugging", "capture",
)  # fmt: skip

RIGHT = f"""
from omni_platforms.platform import Probe, ProbeStatus, hookimpl

@hookimpl
def omni_platforms_probe():
    return Probe({NAME!r}, ProbeStatus.AVAILABLE, "the host, by another name", 1)

@hookimpl
def omni_platforms_create(name):
    if name != {NAME!r}:
        return None
    from omni_platforms.platform.cpu import CpuPlatform
    return type("Acme", (CpuPlatform,), {{"name": {NAME!r}, "vendor": "acme"}})()
"""


@dataclass
class Run:
    """What one run of the suite came to."""

    status: int = -1
    report: Report | None = None
    said: str = ""
    options: list[str] = field(default_factory=list)

    def outcomes(self, tier: str | None = None) -> set[Outcome]:
        """Return how the tests, or those of one tier, ended."""
        assert self.report is not None
        return {row.outcome for row in self.report.rows if tier in (None, row.tier)}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the report (this object is a plugin of the run)."""
        with contextlib.suppress(KeyError):  # no platform was named
            ours = session_of(session.config)
            self.report = ours.report() if ours.rows else None


def run_suite(*options: str, files: tuple[str, ...] = (), name: str | None = NAME) -> Run:
    """Run the suite on the platform `name`, which must be installed, in this process."""
    run = Run(options=list(options))
    off = [part for each in _OFF for part in ("-p", f"no:{each}")]
    places = [str(SUITE / file) for file in files] or ["--pyargs", "omni_platforms.conformance"]
    arguments = ["-p", PLUGIN, *off, "-c", os.devnull, f"--rootdir={SUITE}", "-W", "ignore"]
    named = [] if name is None else ["--omni-platform", name]
    before = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        run.status = int(pytest.main([*arguments, *named, *options, *places], plugins=[run]))
    finally:
        if before is None:
            del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        else:
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = before
    return run


@contextlib.contextmanager
def installed(folder: Path, source: str, known: str | None = None) -> Iterator[None]:
    """Let a distribution with this plugin be installed, here and in child processes.

    The plugin is a package of its own, with `known` as its list of known failures.
    """
    package = f"acme_{next(_numbers)}"
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    (folder / package / "plugin.py").write_text(source)
    if known is not None:
        (folder / package / "conformance.toml").write_text(known)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[omni_platforms]\n{NAME} = {package}.plugin\n")
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
