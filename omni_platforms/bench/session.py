"""`run_benchmarks`: run some benchmarks and return the document of the result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import import_module
from typing import Any, Protocol

from omni_platforms.bench import BENCHMARKS, MODELS
from omni_platforms.bench.context import Bench
from omni_platforms.bench.machine import load_warning, machine, simulated_warning, versions
from omni_platforms.bench.report import SCHEMA_VERSION, noise_warnings
from omni_platforms.bench.rows import Row

ROUNDS = 21
QUICK_ROUNDS = 5


class Benchmark(Protocol):
    """What a benchmark's module has."""

    NAME: str

    def run(self, bench: Bench) -> list[Row]:
        """Measure, and return the rows."""


def load(name: str) -> Benchmark:
    """Import a benchmark. Raises `KeyError` for a name that is in neither table."""
    benchmark: Benchmark = import_module({**BENCHMARKS, **MODELS}[name])
    return benchmark


def run_benchmarks(names: Sequence[str], bench: Bench) -> dict[str, Any]:
    """Run the named benchmarks one after the other and return the result, ready for JSON.

    Blocks until all are done, for minutes. A benchmark that moved a wrong byte raises
    `BenchError`, and then there is no result at all.
    """
    facts = machine(bench.platform, bench.device)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    for warning in filter(None, (load_warning(facts), simulated_warning(facts))):
        bench.warn(warning)
    rows = [row for name in names for row in load(name).run(bench)]
    for warning in noise_warnings(rows):
        bench.warn(warning)
    return {
        "schema_version": SCHEMA_VERSION,
        "date": date,
        "settings": {"benchmarks": list(names), "rounds": bench.rounds, "quick": bench.quick},
        "machine": facts,
        "versions": versions(),
        "rows": [row.as_dict() for row in rows],
        "counts": [count.as_dict() for count in bench.counts],
        "warnings": list(bench.warnings),
    }
