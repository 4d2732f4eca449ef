"""Write the support matrix of the documentation from conformance reports.

    python tools/support_matrix.py                        # the tables, from what is kept
    python tools/support_matrix.py reports/*/conformance.json   # take these reports in first

What is kept is `docs/conformance/summary.json`: of each platform's report what the tables need.
A report from hardware is kept rather than one from a simulated device, then one of more devices,
then the later one. The tables stand between two comments in `docs/support.md` and `README.md`;
nothing else there is touched.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "conformance" / "summary.json"

PLATFORMS = ("cuda", "rocm", "npu", "xpu", "musa", "cpu")
# What a user would ask for, and the tests of the suite that answer.
TOPICS = {
    "identity and probe": ("test_t0_identity.py", "test_t0_probe.py"),
    "devices and memory": ("test_t1_devices.py",),
    "events": ("test_t2_events.py",),
    "side streams": ("test_t2_streams.py",),
    "pinned memory": ("test_t3_pinned.py",),
    "copies to and from the host": ("test_t3_copies.py",),
    "registered host memory": ("test_t3_registration.py",),
    "`AsyncOutputExecutor`": ("test_t4_executor.py",),
    "`Arena`, outputs across processes": ("test_t4_arena.py",),
    "`MultiprocExecutor`": ("test_t4_engine.py",),
    "collectives": ("test_t5_collectives.py",),
    "graphs": ("test_t5_graphs.py",),
    "several devices": ("test_t5_devices.py",),
}
_FAILED = ("failed", "error", "known", "stale")

Summary = dict[str, Any]


def summarize(report: Summary) -> Summary:
    """Return what the tables need of one report: outcomes by the file of the tests."""
    files: dict[str, Counter[str]] = {}
    for row in report["rows"]:
        outcome = row["outcome"]
        if outcome == "skipped":
            outcome = _kind_of_skip(row["reason"])
        files.setdefault(row["id"].partition("::")[0], Counter())[outcome] += 1
    names = ("platform", "mode", "device", "device_count", "suite_version", "tier_certified")
    return {
        **{name: report[name] for name in names},
        "torch": report["versions"]["torch"],
        "started": report["started"],
        "outcomes": {file: dict(sorted(counts.items())) for file, counts in sorted(files.items())},
    }


def _kind_of_skip(reason: str) -> str:
    if reason.startswith("not declared"):
        return "not declared"
    return "needs more devices" if re.match(r"needs \d+ devices", reason) else "does not apply"


def cell(summary: Summary | None, files: tuple[str, ...]) -> str:
    """Return what the matrix says of some tests on one platform."""
    if summary is None:
        return "not run"
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(summary["outcomes"].get(file, {}))
    mode = str(summary["mode"])
    if any(counts[outcome] for outcome in _FAILED):
        return f"**fails** ({mode})"
    if counts["passed"]:
        alone = counts["needs more devices"] and summary["platform"] != "cpu"
        return f"{mode}, one device" if alone else mode
    lacks = counts["not declared"] and not counts["blocked"] and not counts["needs more devices"]
    return "not declared" if lacks else "not run"


def matrix(kept: dict[str, Summary]) -> str:
    """Return the table of topics by platforms."""
    rows = [
        [topic, *(cell(kept.get(name), files) for name in PLATFORMS)]
        for topic, files in TOPICS.items()
    ]
    return _table(["", *(f"`{name}`" for name in PLATFORMS)], rows)


def platforms(kept: dict[str, Summary]) -> str:
    """Return the table of platforms: to which tier each is certified, and where it ran."""
    rows = []
    for name in PLATFORMS:
        found = kept.get(name)
        if found is None:
            rows.append([f"`{name}`", "-", "not run"])
        else:
            torch = found["torch"].partition("+")[0]
            device = found["device"].removeprefix("Simulated ")
            if found["mode"] == "hardware" and found["device_count"] > 1:
                device = f"{found['device_count']} x {device}"
            where = f"{found['mode']}: {device}, torch {torch}, {found['started'][:10]}"
            rows.append([f"`{name}`", found["tier_certified"] or "-", where])
    return _table(["platform", "certified to", "ran on"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replaced(text: str, name: str, table: str) -> str:
    """Return `text` with `table` between the comments that have this name.

    Raises `ValueError` where they are missing.
    """
    begin, end = f"<!-- {name}: generated -->\n", "<!-- end -->"
    if begin not in text:
        raise ValueError(f"no comment {begin.strip()!r} to put the table behind")
    before, _, behind = text.partition(begin)
    return f"{before}{begin}\n{table}\n\n{end}{behind.partition(end)[2]}"


def pages(kept: dict[str, Summary]) -> dict[Path, str]:
    """Return the pages that have a table, as they ought to be."""
    tables = {"support matrix": matrix(kept), "platforms": platforms(kept)}
    found = {}
    for page in (ROOT / "docs" / "support.md", ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        for name, table in tables.items():
            if f"<!-- {name}: generated -->" in text:
                text = replaced(text, name, table)
        found[page] = text
    return found


def read_kept() -> dict[str, Summary]:
    """Return what is kept, by platform."""
    found: dict[str, Summary] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def taken_in(kept: dict[str, Summary], reports: list[Summary]) -> dict[str, Summary]:
    """Return what is kept once these reports are taken in."""
    found = dict(kept)
    for summary in map(summarize, reports):
        before = found.get(summary["platform"])
        if before is None or _weight(summary) >= _weight(before):
            found[summary["platform"]] = summary
    return {name: found[name] for name in PLATFORMS if name in found}


def _weight(summary: Summary) -> tuple[bool, int, str]:
    real = summary["mode"] == "hardware"
    return real, summary["device_count"] if real else 0, summary["started"]


def main(arguments: list[str]) -> int:
    """Take reports in and write the tables; print what was written."""
    reports = [json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments]
    kept = taken_in(read_kept() if KEPT.exists() else {}, reports)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for page, text in pages(kept).items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
