"""The pytest plugin of the audit: a marker and a fixture, and nothing until they are used.

    @pytest.mark.max_host_syncs(3)
    def test_a_step_reads_little(): ...

    def test_what_waits(sync_audit):
        denoise()
        assert sync_audit.report().count == 0

pytest loads it where omni-platforms is installed (entry point of group
`pytest11`), so it imports neither torch nor a platform.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from omni_platforms.audit.report import AuditReport
    from omni_platforms.audit.session import SyncAudit

NAME = __name__
"""The plugin's name for pytest, the same for `-p` and for the entry point."""

MARKER = "max_host_syncs"
_SHOWN = 10


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(n): fails where the test's thread makes the host wait for the device more than "
        "n times, waits inside allow_sync aside; without an accelerator, where it would wait",
    )


@pytest.fixture
def sync_audit_platform() -> Any:
    """The platform to audit: the current one. Override it to name another."""
    from omni_platforms.platform.selection import current_platform

    return current_platform()


@pytest.fixture
def sync_audit(sync_audit_platform: Any) -> Iterator[SyncAudit]:
    """An audit of the waits of the host, from here to the end of the test."""
    from omni_platforms.audit.session import SyncAudit

    with SyncAudit(sync_audit_platform) as audit:
        yield audit


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Hold a marked test to its budget."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return (yield)
    limit = _limit(marker)
    from omni_platforms.audit.session import SyncAudit

    platform: Any = pyfuncitem.funcargs.get("sync_audit_platform")
    with SyncAudit(platform) as audit:
        result = yield
    report = audit.report()
    if report.count > limit:
        pytest.fail(_message(report, limit), pytrace=False)
    return result


def _limit(marker: pytest.Mark) -> int:
    limit = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        pytest.fail(f"{MARKER} takes one whole number, such as {MARKER}(0)", pytrace=False)
    return limit


def _message(report: AuditReport, limit: int) -> str:
    verb = "would wait" if report.mode == "cpu-as-device" else "waited"
    lines = [f"the host {verb} for the device {report.count} times, at most {limit} are allowed:"]
    for site in report.sites[:_SHOWN]:
        lines.append(f"  {site.where}: {site.kind} x{site.count}: {site.source}")
    left = len(report.sites) - _SHOWN
    return "\n".join([*lines, f"  and {left} more sites"] if left > 0 else lines)
