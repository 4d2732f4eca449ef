"""What the audit's tests on each device ask of a report."""

from __future__ import annotations

from collections import Counter
from typing import Any

from omni_platforms.audit.report import AuditReport
from tests.audit import toy_loop


def found(report: AuditReport) -> dict[tuple[int, str], float]:
    """Return `{(line, kind): count a step}` of the toy loop's sites."""
    counts: Counter[Any] = Counter()
    for site in report.sites:
        assert site.file.endswith("toy_loop.py"), site
        counts[site.line, site.kind] += site.count / report.steps
    return dict(counts)


def audit_the_loop(platform: Any, device: str, steps: int, **options: Any) -> AuditReport:
    """Audit the loop's steps and return the report; what was made before them is left out."""
    from omni_platforms.audit import SyncAudit, step

    loop = toy_loop.Loop(device) if device != "cpu" else None
    with SyncAudit(platform, **options) as audit:
        loop = loop or toy_loop.Loop(
            device
        )  # the CPU knows its device tensors by how they are made
        for number in range(steps):
            with step():
                loop.step(number)
    return audit.report()
