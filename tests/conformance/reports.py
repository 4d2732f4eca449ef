"""Reports for the tests of what is made of them."""

from __future__ import annotations

from typing import Any

from omni_platforms.conformance.record import Mode, Outcome, Report, Row

HOSTILE = "<script>alert('x')</script> & | `a` \\ *b* _c_ [d](e) \x1b[31mred\x1b[0m \x00 \ud800 ]]>"


def row(name: str, tier: str, outcome: Outcome, **fields: Any) -> Row:
    return Row(f"test_{tier.lower()}.py::test_{name}", tier, outcome, Mode.SIMULATED, **fields)


def failure(name: str, tier: str, outcome: Outcome = Outcome.FAILED, **fields: Any) -> Row:
    texts = {"contract": f"{name} holds", "reason": f"{name} broke", "remedy": f"mend {name}"}
    return row(name, tier, outcome, **{**texts, "detail": f"Traceback of {name}", **fields})


MIXED = Report(
    platform="acme",
    mode=Mode.SIMULATED,
    suite_version="0.1.0",
    tier_declared="T4",
    device="Acme One",
    device_count=2,
    versions={"torch": "2.13.0", "driver": "7"},
    started="2026-11-30T12:00:00+00:00",
    rows=[
        row("probe", "T0", Outcome.PASSED, duration_s=0.25),
        row("memory", "T1", Outcome.PASSED),
        failure("uuid", "T1", Outcome.KNOWN),
        failure("order", "T2"),
        failure("stale", "T2", Outcome.STALE),
        failure("fixture", "T2", Outcome.ERROR),
        row("pinned", "T3", Outcome.BLOCKED, reason="T2 failed"),
        row("graphs", "T5", Outcome.SKIPPED, reason="not declared"),
    ],
)


def hostile_report() -> Report:
    texts = dict.fromkeys(("reason", "contract", "remedy", "detail"), HOSTILE + "\nnext ``` line")
    bad = Row(HOSTILE, "T2", Outcome.FAILED, Mode.HARDWARE, duration_s=1.5, **texts)
    return Report(
        platform=HOSTILE,
        mode=Mode.HARDWARE,
        suite_version=HOSTILE,
        tier_declared=None,
        rows=[bad],
        device=HOSTILE,
        versions={HOSTILE: HOSTILE},
        started=HOSTILE,
    )
