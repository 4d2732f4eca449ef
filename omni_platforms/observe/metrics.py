"""The executors' `stats()` as Prometheus metrics, read when somebody scrapes.

Needs the extra `metrics`. Nothing is counted twice or in advance: a scrape calls `stats()` of each
executor that lives, and between two scrapes nothing happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omni_platforms import observers
from omni_platforms.errors import MissingExtraError

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ImportError as missing:
    raise MissingExtraError(
        "metrics need prometheus-client: pip install 'omni-platforms[metrics]'"
    ) from missing

_GAUGES = {"pending", "pending_bytes", "peak_pending_bytes", "queued", "calls"}
_WORKER_GAUGES = {"alive", "requests"}
_STATES = ("running", "asleep", "closing", "ended")
_TEXTS = {
    "outputs": "of AsyncOutputExecutor.stats()",
    "engine": "of MultiprocExecutor.stats()",
    "worker": "of one worker in MultiprocExecutor.stats()",
}

Labels = Mapping[str, str]


class ExecutorCollector(Collector):
    """Collects from every executor of this process that lives. Any thread may scrape.

    Metrics are `omni_outputs_*` and `omni_engine_*`, with the names of the fields of `OutputStats`,
    `EngineStats` and `WorkerStats`; counters end in `_total`. Sizes in bytes. The label `executor`
    counts the executors of a process from 0.
    """

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment. Blocks no executor."""
        families: dict[str, Any] = {}
        for made in observers.live():
            if made.kind == "outputs":
                _add_outputs(families, made)
            elif made.kind == "engine":
                _add_engine(families, made)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what there is depends on the executors."""
        return []


def register(registry: CollectorRegistry = REGISTRY) -> ExecutorCollector:
    """Register a collector of this process's executors; return it, for `registry.unregister`.

    Once for a registry: two collectors would say everything twice.
    """
    collector = ExecutorCollector()
    registry.register(collector)
    return collector


def _add_outputs(families: dict[str, Any], made: observers.Made) -> None:
    stats = made.thing.stats()
    labels = {"executor": str(made.number), "device": str(made.thing.device), "mode": stats.mode}
    _add_fields(families, "outputs", stats, labels, _GAUGES)


def _add_engine(families: dict[str, Any], made: observers.Made) -> None:
    stats = made.thing.stats()
    labels = {"executor": str(made.number)}
    _add_fields(families, "engine", stats, labels, _GAUGES)
    for state in _STATES:
        value = stats.state == state
        text = "1 for the state that it is in"
        _add(families, "engine_state", text, {**labels, "state": state}, value, True)
    for worker in stats.workers:
        each = {**labels, "rank": str(worker.rank), "device": worker.device}
        _add_fields(families, "worker", worker, each, _WORKER_GAUGES)


def _add_fields(
    families: dict[str, Any], kind: str, stats: Any, labels: Labels, gauges: set[str]
) -> None:
    prefix = "engine_worker" if kind == "worker" else kind
    for field in dataclasses.fields(stats):
        value = getattr(stats, field.name)
        gauge = field.name in gauges
        if not isinstance(value, int) or field.name in ("pid", "rank", "pinned"):
            continue
        text = f"{field.name} {_TEXTS[kind]}"
        _add(families, f"{prefix}_{field.name}", text, labels, value, gauge)


def _add(
    families: dict[str, Any], name: str, text: str, labels: Labels, value: float, gauge: bool
) -> None:
    family = families.get(name)
    if family is None:
        kind = GaugeMetricFamily if gauge else CounterMetricFamily
        family = families[name] = kind(f"omni_{name}", text, labels=list(labels))
    family.add_metric(list(labels.values()), float(value))
