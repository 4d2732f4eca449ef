"""A sink that keeps what it hears."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from omni_platforms.observe import hub
from omni_platforms.observe.sink import Record, Sink


class Listener(Sink):
    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.begun: list[Record] = []
        self.ended: list[Record] = []

    def step(self, name: str, subject: str) -> Any:
        return _Step(self.steps, name, subject)

    def opened(self, record: Record) -> None:
        self.begun.append(record)

    def closed(self, record: Record) -> None:
        self.ended.append(record)

    def named(self, name: str) -> list[str]:
        return [subject for step, subject in self.steps if step == name]


class _Step:
    def __init__(self, steps: list[tuple[str, str]], name: str, subject: str) -> None:
        self.steps, self.name, self.subject = steps, name, subject

    def about(self, subject: str) -> None:
        self.subject = subject

    def __enter__(self) -> None:
        self.thread = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        assert threading.get_ident() == self.thread
        self.steps.append((self.name, self.subject))


@contextlib.contextmanager
def listening(*sinks: Sink) -> Iterator[None]:
    for sink in sinks:
        hub.add(sink)
    try:
        yield
    finally:
        for sink in sinks:
            hub.remove(sink)
