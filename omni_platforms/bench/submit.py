"""`submit`: what handing an output over costs the thread that launches the forward."""

from __future__ import annotations

from omni_platforms.bench.context import Bench
from omni_platforms.bench.rows import Row
from omni_platforms.bench.submit_cost import call_rows

NAME = "submit"


def run(bench: Bench) -> list[Row]:
    """Measure the calls alone."""
    return call_rows(bench)
