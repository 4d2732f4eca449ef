"""`submit`: what handing outputs over costs the thread that launches the forwards."""

from __future__ import annotations

from omni_platforms.bench.context import Bench
from omni_platforms.bench.rows import Row
from omni_platforms.bench.submit_background import background_rows
from omni_platforms.bench.submit_cost import call_rows
from omni_platforms.bench.submit_loops import loop_rows
from omni_platforms.bench.submit_steady import count_steady_state

NAME = "submit"


def run(bench: Bench) -> list[Row]:
    """Measure calls, loops and threads in the background, and count what outputs leave behind."""
    rows = [*call_rows(bench), *loop_rows(bench), *background_rows(bench)]
    count_steady_state(bench)
    return rows
