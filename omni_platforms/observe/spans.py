"""An OpenTelemetry span of each request and each output, below the span of its caller.

Needs the extra `tracing`, which is the API alone: unless the program sets up the SDK, no span is
made, and an output costs a question. Names and attributes stand in docs/observability.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from omni_platforms import __version__
from omni_platforms.errors import MissingExtraError
from omni_platforms.observe import hub
from omni_platforms.observe.sink import Record, Sink, now

try:
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ImportError as missing:
    raise MissingExtraError(
        "spans need opentelemetry-api: pip install 'omni-platforms[tracing]'"
    ) from missing

_NAMES = {"output": "omni.output", "request": "omni.request", "arrival": "omni.arrival"}
_PHASES = (
    ("forward", "compute", ("copy", "room")),
    ("copy", "copy", ("send",)),
)
"""Of a worker: the span, the stamp at which it begins, and those at which it ends."""


class Spans(Sink):
    """Makes spans with the tracer provider of the program, or with `provider`."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("omni_platforms", __version__, provider)

    def opened(self, record: Record) -> None:
        """Begin a span, below the one that is current where the output is handed over."""
        name = _NAMES.get(record.kind)
        if name is None:
            return  # of a worker's process, which has no caller
        span = self._tracer.start_span(
            name, kind=SpanKind.INTERNAL, start_time=_nanoseconds(record.opened)
        )
        if span.is_recording():
            span.set_attribute("omni.id", record.id)
            span.set_attribute("omni.executor", record.source)
            if record.device:
                span.set_attribute("omni.device", record.device)
            record.kept[self] = span

    def closed(self, record: Record) -> None:
        """End its span, with what is known now."""
        span = record.kept.pop(self, None)
        if span is None:
            return
        for name, fact in record.facts.items():
            span.set_attribute(f"omni.{name}", fact)
        for stage, at in sorted(record.moments.items(), key=lambda item: item[1]):
            span.add_event(stage, timestamp=_nanoseconds(at))
        if record.kind == "arrival":
            self._phases(record, span)
        if record.error is not None:
            span.set_attribute("error.type", record.error)
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(_nanoseconds(record.closed))

    def _phases(self, record: Record, parent: Any) -> None:
        """Make the worker's parts of an output, from the stamps that it sent."""
        context = trace.set_span_in_context(parent)
        for name, begin, end in _stretches(record):
            child = self._tracer.start_span(f"omni.{name}", context, start_time=_nanoseconds(begin))
            child.set_attribute("omni.id", record.id)
            child.end(_nanoseconds(end))


def _stretches(record: Record) -> Iterator[tuple[str, float, float]]:
    at = record.moments
    for name, begin, ends in _PHASES:
        end = next((at[stamp] for stamp in ends if stamp in at), None)
        if begin in at and end is not None:
            yield name, at[begin], end


def _nanoseconds(moment: float) -> int:
    """Return a moment of `now()` as nanoseconds since 1970, which spans want."""
    return time.time_ns() - int((now() - moment) * 1e9)


def instrument(provider: trace.TracerProvider | None = None) -> Spans:
    """Make spans from now on; return what `stop` ends. Any thread.

    Importing this module raises `MissingExtraError` where opentelemetry-api is not installed.
    """
    spans = Spans(provider)
    hub.add(spans)
    return spans


def stop(spans: Spans) -> None:
    """Make no more spans. Those that are open end with their outputs."""
    hub.remove(spans)
