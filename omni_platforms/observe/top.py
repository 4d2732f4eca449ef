"""The live view in a terminal: one table, drawn anew at each look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from omni_platforms.observe.client import Answer, ask_all
from omni_platforms.observe.rows import Counts, Row, rows_of

_LEADING = ("PID", "WHO", "DEVICE", "STATE", "IN FLIGHT", "PHASES")
_COLUMNS = (*_LEADING, "BYTES", "OLDEST", "OUT/S", "BYTES/S")
_LEFT = {"WHO", "DEVICE", "STATE", "PHASES"}
_STALE_S = 10.0  # an output that is older than this is shown in another colour

HINT = "no process of this user can be seen: run it with OMNI_EXPOSE=1, or call observe.expose()"


class Looker:
    """Looks at all processes of this user, again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: Counts = {}

    def look(self) -> list[Row]:
        """Return the rows of this moment, with rates since the look before. Blocks for 2 s at most.

        Raises `ObserveError` for a folder that is not private.
        """
        answers: list[Answer] = ask_all(self._folder, {"want": "snapshot"})
        rows, self._counts = rows_of(answers, self._counts)
        return rows


def show_live(looker: Looker, interval: float, console: Console) -> None:
    """Draw the table every `interval` seconds, until Ctrl-C."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            live.update(table_of(looker.look(), interval), refresh=True)
            time.sleep(max(0.05, interval - (time.monotonic() - began)))


def table_of(rows: Sequence[Row], interval: float | None = None) -> RenderableType:
    """Return the table; `interval` is named in its title."""
    if not rows:
        return Text(HINT)
    every = "" if interval is None else f", every {interval:g} s"
    title = f"omni-platforms top: {len({row.pid for row in rows})} processes{every}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=False)
    for name in _COLUMNS:
        justify: Literal["left", "right"] = "left" if name in _LEFT else "right"
        table.add_column(name, justify=justify, no_wrap=name != "PHASES")
    for row in rows:
        table.add_row(*_cells(row), style="" if row.kind != "worker" else "dim")
    return table


def _cells(row: Row) -> list[Text | str]:
    who = f"{row.command} {row.kind} {row.number}" if row.command else f"  {row.kind} {row.number}"
    phases = ", ".join(f"{name} {count}" for name, count in row.phases.items())
    problem = Text(row.problem, style="bold red")
    of = "" if row.capacity is None else f" of {size(row.capacity)}"
    return [
        str(row.pid),
        who,
        row.device,
        Text(row.state, style="" if row.state in ("async", "running") else "yellow"),
        str(row.in_flight),
        problem if row.problem else phases,
        "-" if row.bytes is None else size(row.bytes) + of,
        _age(row.oldest),
        "-" if row.outputs_per_s is None else f"{row.outputs_per_s:.1f}",
        "-" if row.bytes_per_s is None else size(row.bytes_per_s),
    ]


def _age(seconds: float | None) -> Text | str:
    if not seconds:
        return "-"
    return Text(f"{seconds:.2f} s", style="bold red" if seconds > _STALE_S else "")


def size(nbytes: float) -> str:
    """Return bytes for people, in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
