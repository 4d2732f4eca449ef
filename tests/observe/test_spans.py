"""OpenTelemetry spans: below the caller's, with the worker's parts, and none without an SDK."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from omni_platforms import AsyncOutputExecutor
from omni_platforms.engine.messages import Kind
from omni_platforms.engine.payload import Blob
from omni_platforms.observe import spans as module
from omni_platforms.observe.spans import Spans, instrument, stop
from omni_platforms.platform.cpu import CpuPlatform
from tests.engine.conftest import pair
from tests.engine.fakes import Pair

__all__ = ["pair"]

PATIENCE = 30.0


class Collected:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the program")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def collected() -> Iterator[Collected]:
    made = Collected()
    spans = instrument(made.provider)
    yield made
    stop(spans)


def test_an_output_is_below_the_span_of_its_caller(collected: Collected) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        with collected.tracer.start_as_current_span("request 1") as caller:
            future = outputs.submit(torch.ones(100), on_host=torch.sum)
        with collected.tracer.start_as_current_span("somebody else"):
            future.result(PATIENCE)
    (span,) = collected.named("omni.output")
    assert span.parent is not None
    assert span.parent.span_id == caller.get_span_context().span_id
    attributes: Any = span.attributes
    assert (attributes["omni.bytes"], attributes["omni.device"]) == (400, "cpu")
    assert attributes["omni.id"].endswith(".0")
    stages = [event.name for event in span.events]
    assert stages[0] == "submitted"
    assert {"handed_over", "copied", "packed", "resolved"} <= set(stages)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.events[0].timestamp <= span.end_time
    assert abs(span.end_time - time.time_ns()) < 60e9
    assert span.status.status_code is StatusCode.UNSET


def test_an_error_is_the_status(collected: Collected) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        future = outputs.submit(torch.ones(1), on_host=lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            future.result(PATIENCE)
    (span,) = collected.named("omni.output")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ZeroDivisionError"


def test_a_request_its_output_and_the_workers_parts(collected: Collected, pair: Pair) -> None:
    executor, worker = pair
    with collected.tracer.start_as_current_span("request") as caller:
        computed = executor.submit("a")
        output = executor.wait_output_ready(computed.async_output_id)
    name = worker.begin()
    now = time.monotonic()
    stamps = {"queue": now - 4, "compute": now - 3, "room": now - 2, "copy": now - 1, "send": now}
    worker.say(Kind.COMPUTE_DONE, name, stamps=stamps)
    computed.result(PATIENCE)
    worker.say(Kind.OUTPUT_READY, name, packet=Blob(pickle.dumps("value")), stamps=stamps)
    assert output.result(PATIENCE) == "value"
    names = ["omni.request", "omni.arrival", "omni.forward", "omni.copy"]
    (one,), (arrival,), (forward,), (copy,) = (collected.named(name) for name in names)
    parents = [span.parent.span_id for span in (one, arrival) if span.parent]
    assert parents == [caller.get_span_context().span_id] * 2
    for part, seconds in ((forward, 2.0), (copy, 1.0)):
        assert part.parent is not None
        assert part.parent.span_id == arrival.context.span_id
        assert part.start_time is not None
        assert part.end_time is not None
        assert part.end_time - part.start_time == pytest.approx(seconds * 1e9, rel=0.05)
    assert arrival.attributes is not None
    assert arrival.attributes["omni.rank"] == 0


def test_without_an_sdk_there_is_no_span_and_nothing_is_kept() -> None:
    assert not isinstance(trace.get_tracer_provider(), TracerProvider)
    with using(Spans()) as spans, AsyncOutputExecutor(CpuPlatform()) as outputs:
        future = outputs.submit(torch.ones(1))
        assert future.result(PATIENCE) == 1
        record = future.record  # type: ignore[attr-defined]
        assert spans not in record.kept
        assert record.closed


@contextlib.contextmanager
def using(spans: Spans) -> Iterator[Spans]:
    module.hub.add(spans)
    try:
        yield spans
    finally:
        stop(spans)


def test_twin_a_span_that_begins_where_it_ends_has_another_parent(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = Spans.opened, Spans.closed

    def late(self: Spans, record: Any) -> None:
        opened(self, record)
        closed(self, record)

    monkeypatch.setattr(Spans, "opened", lambda self, record: None)
    monkeypatch.setattr(Spans, "closed", late)
    with pytest.raises(AssertionError):
        test_an_output_is_below_the_span_of_its_caller(collected)
