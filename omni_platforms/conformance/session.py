"""One run of the suite inside pytest: what runs, what is blocked, and the rows that come of it."""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.conformance.known_failures import KnownFailure, read_known_failures
from omni_platforms.conformance.record import (
    FAILURES,
    TIERS,
    Mode,
    Outcome,
    Report,
    Row,
    parse_tiers,
)
from omni_platforms.conformance.subject import Subject, find_subject
from omni_platforms.conformance.suite import SUITE_VERSION
from omni_platforms.conformance.summary import headline
from omni_platforms.conformance.verdict import Verdict, verdict_of
from omni_platforms.conformance.write import write_report
from omni_platforms.errors import KnownFailuresError, OmniError

_SUITE = Path(__file__).parent / "suite"
_BLOCKED = "blocked: "


@dataclass(eq=False)
class ConformanceSession:
    """A pytest plugin object that lives as long as one run of the suite."""

    subject: Subject
    tiers: tuple[str, ...] = TIERS
    require_device: bool = False
    keep_going: bool = False
    folder: Path | None = None
    known: dict[str, KnownFailure] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    started: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).isoformat()
    )
    _phases: list[pytest.CallInfo[Any]] = field(default_factory=list)
    _blocked: str = ""

    @staticmethod
    def from_options(config: pytest.Config) -> ConformanceSession:
        """Make one of the command line's options. Raises `pytest.UsageError` for bad ones."""
        folder = config.getoption("--omni-report")
        try:
            subject = find_subject(config.getoption("--omni-platform"))
            file = subject.known_failures
            return ConformanceSession(
                subject,
                parse_tiers(config.getoption("--omni-tier")),
                config.getoption("--require-device"),
                config.getoption("--omni-keep-going"),
                None if folder is None else Path(folder),
                {} if file is None else read_known_failures(file),
            )
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
        except OmniError as error:
            raise pytest.UsageError(str(error)) from error

    # What runs ----------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the tiers that were asked for, in their order."""
        ours = [item for item in items if _SUITE in item.path.parents]
        self._check_known({row_id(item) for item in ours}, whole=not _is_narrowed(config))
        kept = [item for item in ours if tier_of(item) in self.tiers]
        config.hook.pytest_deselected(items=[item for item in ours if item not in kept])
        others = [item for item in items if item not in ours]
        items[:] = sorted(kept, key=lambda item: TIERS.index(tier_of(item))) + others

    def _check_known(self, ids: set[str], whole: bool) -> None:
        unknown = sorted(set(self.known) - ids)
        if whole and unknown:
            raise pytest.UsageError(
                f"{self.subject.known_failures} lists tests that the suite does not have: "
                f"{', '.join(unknown)}. Take them out."
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what is blocked, and what the platform does not claim."""
        if _SUITE not in item.path.parents:
            return
        self._phases = []
        if self._blocked and self._blocked < tier_of(item) and not self.keep_going:
            pytest.skip(f"{_BLOCKED}{self._blocked} failed")
        reason = self._why_not(item)
        if reason:
            pytest.skip(reason)

    def _why_not(self, item: pytest.Item) -> str:
        platform = self.subject.made
        if platform is None:
            if self.subject.available or tier_of(item) == "T0":
                return ""  # the fixtures say what there is not
            return f"no device: {self.subject.report.reason}"
        for mark in item.iter_markers("omni_needs"):
            lacking = [c.value for c in mark.args if c not in platform.capabilities]
            if lacking:
                return f"not declared: {', '.join(lacking)}"
        for mark in item.iter_markers("omni_devices"):
            count = platform.device_count()
            if count < mark.args[0]:
                return f"needs {mark.args[0]} devices, and there is {count}"
        return ""

    # What came of it ----------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the phase; at the last one make the row. Let pytest show known failures as such."""
        report = yield
        if _SUITE not in item.path.parents:
            return report
        self._phases.append(call)
        known = self.known.get(row_id(item))
        if call.when == "call" and known is not None:
            verdict = verdict_of(self._phases, known)
            _show(report, verdict)
        if call.when == "teardown":
            self._add_row(item, verdict_of(self._phases, known))
        return report

    def _add_row(self, item: pytest.Item, verdict: Verdict) -> None:
        outcome, reason = verdict.outcome, verdict.reason
        if outcome is Outcome.SKIPPED and reason.startswith(_BLOCKED):
            outcome, reason = Outcome.BLOCKED, reason.removeprefix(_BLOCKED)
        tier = tier_of(item)
        if outcome in FAILURES and not self._blocked:
            self._blocked = tier
        self.rows.append(
            replace(
                blank_row(item, self.subject.mode),
                outcome=outcome,
                reason=reason,
                duration_s=sum(phase.duration for phase in self._phases),
                detail=verdict.detail,
            )
        )

    def report(self) -> Report:
        """Return the report of what has run so far."""
        platform = self.subject.made
        return Report(
            platform=self.subject.name,
            mode=self.subject.mode,
            suite_version=SUITE_VERSION,
            tier_declared=None if platform is None else platform.conformance_tier,
            rows=self.rows,
            device="" if platform is None else platform.device_name(0),
            device_count=self.subject.report.device_count,
            versions=self._versions(),
            started=self.started,
            tiers=self.tiers,
        )

    def _versions(self) -> dict[str, str]:
        import torch

        found = {"torch": torch.__version__, **self.subject.report.versions}
        return {**found, self.subject.entry.distribution: self.subject.entry.version}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report, and fail a run that certifies less than the platform claims."""
        if not self.rows:
            return
        report = self.report()
        if self.folder is not None:
            write_report(report, self.folder)
        if session.exitstatus == pytest.ExitCode.OK and not report.ok:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say in one line what the run proves, and on what it ran."""
        if self.rows:
            terminalreporter.write_line(headline(self.report()))


def row_id(item: pytest.Item) -> str:
    """Return the name of a test in reports and in lists of known failures."""
    return f"{item.path.name}::{item.name}"


def blank_row(item: pytest.Item, mode: Mode) -> Row:
    """Return the row of a test that was not run (yet)."""
    mark = item.get_closest_marker("omni_remedy")
    return Row(
        row_id(item),
        tier_of(item),
        Outcome.BLOCKED,
        mode,
        contract=_contract(item),
        remedy="" if mark is None else mark.args[0],
    )


def tier_of(item: pytest.Item) -> str:
    """Return the tier that a test is marked with."""
    mark = item.get_closest_marker("omni_tier")
    if mark is None:
        raise KnownFailuresError(f"{item.nodeid} belongs to no tier")
    tier: str = mark.args[0]
    return tier


def _is_narrowed(config: pytest.Config) -> bool:
    """Whether the command line names single tests, so that some may be missing on purpose."""
    return any("::" in argument or argument.endswith(".py") for argument in config.args)


def _contract(item: pytest.Item) -> str:
    text = inspect.getdoc(getattr(item, "function", None)) or ""
    return re.sub(r"\s+", " ", text)


def _show(report: pytest.TestReport, verdict: Verdict) -> None:
    """Let pytest's own output say what a known failure comes to."""
    if verdict.outcome is Outcome.KNOWN:
        report.outcome = "skipped"
        report.wasxfail = verdict.reason
    elif verdict.outcome is Outcome.STALE:
        report.outcome = "failed"
        report.longrepr = verdict.reason
