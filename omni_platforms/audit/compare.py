"""Compares two audits of one program, before and after a change, without promising too much."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_platforms.audit.report import SCHEMA_VERSION, AuditReport
from omni_platforms.errors import AuditError


@dataclass(frozen=True)
class Change:
    """One quantity before and after."""

    before: float | None
    after: float | None


@dataclass(frozen=True)
class Comparison:
    """Two runs. Times in seconds; `None` was not measured in that run."""

    count: Change
    kinds: dict[str, Change]
    blocked_s: Change
    idle_s: Change
    wall_s: Change
    step_median_s: Change
    step_p10_s: Change
    step_p90_s: Change
    step_time: str
    """"faster", "slower", or "within the spread"; "not measured" without steps in both."""
    outputs: str
    """"equal", "different", or "not recorded" where a run noted none."""
    comparable: bool
    """Whether both had the same platform, mode, detail and number of steps."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)


def load(path: str) -> dict[str, Any]:
    """Read a report that `omni-platforms audit --json` printed. Raises `AuditError`."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AuditError(f"the baseline {path!r} cannot be read: {error}") from error
    wanted = {"count", "sites", "blocked_s", "idle_s", "wall_s", "step_s", "outputs", "steps"}
    if not isinstance(report, dict) or not wanted <= set(report):
        raise AuditError(
            f"the baseline {path!r} is no audit: make one with `omni-platforms audit --json`"
        )
    if report.get("schema_version") != SCHEMA_VERSION:
        raise AuditError(
            f"the baseline {path!r} has version {report.get('schema_version')!r}, and this "
            f"command reads {SCHEMA_VERSION}: run the baseline again"
        )
    return report


def compare(before: dict[str, Any], after: AuditReport) -> Comparison:
    """Compare a loaded report with a new one."""
    now = after.to_dict()
    old_step, new_step = before["step_s"] or {}, now["step_s"] or {}
    same = ("platform", "mode", "detail", "steps")
    return Comparison(
        count=Change(before["count"], now["count"]),
        kinds=_kinds(before["sites"], now["sites"]),
        blocked_s=Change(before["blocked_s"], now["blocked_s"]),
        idle_s=Change(before["idle_s"], now["idle_s"]),
        wall_s=Change(before["wall_s"], now["wall_s"]),
        step_median_s=Change(old_step.get("median"), new_step.get("median")),
        step_p10_s=Change(old_step.get("p10"), new_step.get("p10")),
        step_p90_s=Change(old_step.get("p90"), new_step.get("p90")),
        step_time=_verdict(old_step, new_step),
        outputs=_outputs(before["outputs"], now["outputs"]),
        comparable=all(before.get(key) == now[key] for key in same),
    )


def _kinds(before: list[Any], after: list[Any]) -> dict[str, Change]:
    counts: list[Counter[str]] = [Counter(), Counter()]
    for counter, sites in zip(counts, (before, after), strict=True):
        for site in sites:
            counter[site["kind"]] += site["count"]
    old, new = counts
    return {kind: Change(old[kind], new[kind]) for kind in sorted({*old, *new})}


def _verdict(before: dict[str, float], after: dict[str, float]) -> str:
    if not before or not after:
        return "not measured"
    if after["p90"] < before["p10"]:
        return "faster"
    if after["p10"] > before["p90"]:
        return "slower"
    return "within the spread"


def _outputs(before: dict[str, Any], after: dict[str, Any]) -> str:
    if not before or not after:
        return "not recorded"
    return "equal" if before == after else "different"
