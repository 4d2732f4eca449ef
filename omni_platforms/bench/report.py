"""A result as tables for people; and what its spread says about the machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_platforms.bench.rows import Row
from omni_platforms.bench.samples import NOISY_SPREAD
from omni_platforms.bench.units import bytes_text, case_text, number_text, seconds_text
from omni_platforms.errors import BenchError

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1
_PARTS = {"date": str, "machine": dict, "versions": dict, "rows": list, "counts": list}
_FILE_WIDTH = 160
_VERDICT = {True: "met", False: "MISSED", None: ""}


def noise_warnings(rows: Iterable[Row]) -> Iterator[str]:
    """Yield one warning for each benchmark with figures that spread too much to be believed."""
    for name, group in groupby(rows, key=lambda row: row.benchmark):
        found = list(group)
        noisy = [row for row in found if row.noisy]
        if noisy:
            yield (
                f"{name}: {len(noisy)} of {len(found)} times spread by more than "
                f"{NOISY_SPREAD:.0%} of their median: the machine is noisy. Ratios, taken round "
                "by round, suffer less than times; more --rounds help both"
            )


def read_result(path: Path) -> dict[str, Any]:
    """Return a result that `--json` printed. Raises `BenchError` for a file that holds none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read as a result of bench --json: {error}") from error
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise BenchError(
            f"{path} is no result of bench --json with schema_version {SCHEMA_VERSION}: "
            "measure again, or use the version of omni-platforms that wrote it"
        )
    wrong = [key for key, kind in _PARTS.items() if not isinstance(document.get(key), kind)]
    if wrong:
        raise BenchError(f"{path} is no whole result of bench --json: {', '.join(wrong)} missing")
    return document


def missed(document: dict[str, Any]) -> list[str]:
    """Return every target that was missed, as one line each."""
    return [
        f"{row['benchmark']}, {case_text(row['case'])}: {row.get('way') or row['name']}"
        for row in [*document["rows"], *document["counts"]]
        if row["met"] is False
    ]


def print_report(document: dict[str, Any]) -> None:
    """Print a result for people on standard output. Needs rich, and no torch."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:  # a file has room
        console.width = _FILE_WIDTH
    for line in headline(document):
        console.print(line)
    for title, rows in by_case(document["rows"]):
        base = common_base(rows)
        console.print(f"\n{title}" + (f"; ratios to {base}" if base else ""))
        console.print(_table(rows, base))
    for title, counts in by_case(document["counts"]):
        console.print(f"\n{title}")
        console.print(_count_table(counts))
    for warning in document["warnings"]:
        console.print(f"warning: {warning}")


def headline(document: dict[str, Any]) -> list[str]:
    """Return the machine, the versions and the date as lines."""
    facts, versions = document["machine"], document["versions"]
    kind = ", simulated" if facts["simulated"] else ""
    return [
        f"{facts['platform']}: {facts['device_count']} x {facts['device_name']}{kind}",
        f"{facts['cpu']}, {facts['cores']} cores, {bytes_text(facts['memory_bytes'])}, "
        f"load {facts['load']:.1f} at the start; {facts['os']}",
        f"{', '.join(f'{name} {value}' for name, value in versions.items())}; {document['date']}",
    ]


def by_case(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield `(title, rows)` for each run of rows of one benchmark and one case."""
    for (name, case), group in groupby(rows, lambda row: (row["benchmark"], row["case"])):
        yield f"{name}: {case_text(case)}" if case else name, list(group)


def common_base(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return the base of all ratios where they have one in common."""
    bases = {row["base"] for row in rows} - {None}
    return bases.pop() if len(bases) == 1 else None


def _table(rows: Sequence[dict[str, Any]], base: str | None) -> Table:
    lines = [[row["way"], *row_cells(row, base)] for row in rows]
    return _aligned(("", "median", "10 to 90 %", "ratio", "target", "", "note"), lines, 3)


def row_cells(row: dict[str, Any], base: str | None) -> list[str]:
    """Return what stands in a row's columns behind the way; `base` is said elsewhere."""
    return [
        seconds_text(row["seconds"]),
        f"{seconds_text(row['low'])} to {seconds_text(row['high'])}",
        ratio_text(row, base),
        target_text(row),
        _VERDICT[row["met"]],
        row["note"],
    ]


def ratio_text(row: dict[str, Any], base: str | None) -> str:
    """Return a row's ratio, with its base unless that is `base`."""
    if row["ratio"] is None:
        return ""
    named = "" if row["base"] == base else f" x {row['base']}"
    return number_text(row["ratio"]) + named


def target_text(row: dict[str, Any]) -> str:
    """Return a row's target in words, or nothing."""
    if row["target"] is None:
        return ""
    quantity, _, sense = row["target_of"].partition(" ")
    shown = seconds_text if quantity == "seconds" else number_text
    return f"{sense} {shown(row['target'])}"


def _count_table(counts: Sequence[dict[str, Any]]) -> Table:
    lines = [count_cells(count) for count in counts]
    return _aligned(("", "value", "unit", "target", "", "note"), lines, 1)


def count_cells(count: dict[str, Any]) -> list[str]:
    """Return what stands in the columns of a count."""
    return [
        count["name"],
        f"{count['value']:,.10g}",
        count["unit"],
        "" if count["limit"] is None else f"at most {count['limit']:,.10g}",
        _VERDICT[count["met"]],
        count["note"],
    ]


def _aligned(headings: Sequence[str], lines: Sequence[Sequence[str]], right: int) -> Table:
    """Return a table of the columns that are not empty; `right` of them are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    used = [column for column in range(len(headings)) if any(line[column] for line in lines)]
    for column in used:
        number = 1 <= column <= right
        table.add_column(
            headings[column],
            justify="right" if number else "left",
            no_wrap=number,
        )
    for line in lines:
        table.add_row(*(line[column] for column in used))
    return table
