"""Metrics are what `stats()` says at the moment of a scrape, and nothing in between."""

from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest

from omni_platforms import AsyncOutputExecutor
from omni_platforms.engine import EngineStats, WorkerStats
from omni_platforms.observe import hub
from omni_platforms.observe.metrics import register
from omni_platforms.outputs.stats import OutputStats
from omni_platforms.platform.cpu import CpuPlatform
from tests.engine.conftest import pair
from tests.engine.fakes import Pair, until

__all__ = ["pair"]

PATIENCE = 30.0


@pytest.fixture
def registry() -> CollectorRegistry:
    gc.collect()  # executors of other tests
    made = CollectorRegistry()
    register(made)
    return made


def values(registry: CollectorRegistry, **labels: str) -> dict[str, float]:
    """Every sample with these labels, by its name."""
    return {
        sample.name: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if labels.items() <= sample.labels.items()
    }


def number_of(registry: CollectorRegistry, prefix: str) -> str:
    """The label of the executor that was made last."""
    numbers = [
        int(sample.labels["executor"])
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name.startswith(prefix)
    ]
    return str(max(numbers))


def test_an_executor_is_scraped_while_it_lives(registry: CollectorRegistry) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        assert hub.sinks() == ()
        assert "submit" not in vars(outputs)  # nothing stands in the way of an output
        mine = number_of(registry, "omni_outputs")
        for _ in range(3):
            outputs.submit(torch.ones(100), on_host=torch.sum).result(PATIENCE)
        outputs.drain()
        found = values(registry, executor=mine, mode="blocking", device="cpu")
    assert found["omni_outputs_submitted_total"] == 3
    assert found["omni_outputs_resolved_total"] == 3
    assert found["omni_outputs_bytes_copied_total"] == 1200
    assert found["omni_outputs_pending"] == 0
    del outputs
    gc.collect()
    assert values(registry, executor=mine, mode="blocking") == {}


def test_every_number_of_the_stats_is_there(registry: CollectorRegistry, pair: Pair) -> None:
    executor, _ = pair
    with AsyncOutputExecutor(CpuPlatform()):
        names = {name.removesuffix("_total") for name in values(registry)}
    for kind, prefix, texts in (
        (OutputStats, "omni_outputs_", {"mode", "reason", "pinned"}),
        (EngineStats, "omni_engine_", {"mode", "workers"}),
        (WorkerStats, "omni_engine_worker_", {"rank", "pid", "platform", "device"}),
    ):
        fields = {field.name for field in dataclasses.fields(kind)} - texts
        assert {prefix + name for name in fields} <= names
    assert executor.stats().state == "running"


def test_an_engine_and_its_workers(registry: CollectorRegistry, pair: Pair) -> None:
    executor, worker = pair
    mine = number_of(registry, "omni_engine")
    executor.submit("a")
    until(lambda: executor.stats().workers[0].requests == 1)
    found = values(registry, executor=mine)
    assert found["omni_engine_submitted_total"] == 1
    assert found["omni_engine_pending"] == 1
    assert values(registry, executor=mine, rank="0")["omni_engine_worker_requests"] == 1
    assert values(registry, executor=mine, rank="0")["omni_engine_worker_alive"] == 1
    states = {s: values(registry, executor=mine, state=s)["omni_engine_state"] for s in STATES}
    assert states == {"running": 1, "asleep": 0, "closing": 0, "ended": 0}
    assert worker.is_alive()


STATES = ("running", "asleep", "closing", "ended")


def test_the_text_is_what_prometheus_reads(registry: CollectorRegistry) -> None:
    with AsyncOutputExecutor(CpuPlatform()):
        text = generate_latest(registry).decode()
    assert "# TYPE omni_outputs_submitted_total counter" in text
    assert "# TYPE omni_outputs_pending gauge" in text


def test_a_collector_can_be_taken_away() -> None:
    registry = CollectorRegistry()
    collector = register(registry)
    with AsyncOutputExecutor(CpuPlatform()):
        assert values(registry)
        registry.unregister(collector)
        assert values(registry) == {}


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("metrics", "prometheus_client", "metrics"),
        ("spans", "opentelemetry", "tracing"),
    ],
)
def test_a_missing_extra_is_named(module: str, package: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from omni_platforms import MissingExtraError\n"
        f"try:\n    import omni_platforms.observe.{module}\n"
        "except MissingExtraError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert f"pip install 'omni-platforms[{extra}]'" in done.stdout, done.stderr
