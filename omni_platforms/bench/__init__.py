"""Benchmarks behind `omni-platforms bench` (docs/benchmarks.md).

A benchmark is a module with `NAME` and `run(bench) -> list[Row]`. The table names
them without importing any, so that help stays light.
"""

from __future__ import annotations

BENCHMARKS = {
    "submit": "omni_platforms.bench.submit",
    "handoff": "omni_platforms.bench.handoff",
    "pipeline": "omni_platforms.bench.pipeline",
    "tokens": "omni_platforms.bench.tokens",
}
"""Every benchmark's module, by the name that the command line knows, in the order of a run."""

MODELS = {"diffusers": "omni_platforms.bench.diffusers_model"}
"""Benchmarks of a real model, which need an extra, by its name."""
