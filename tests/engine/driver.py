"""Talks to a worker as the executor does, one message at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from omni_platforms.engine.messages import (
    AsyncOutput,
    Call,
    Drop,
    Ended,
    Execute,
    ExecuteBatch,
    Kind,
    PreviewTaken,
    Setup,
    Started,
)
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.process import WorkerProcess
from omni_platforms.errors import ChannelClosedError

PATIENCE = 30.0
MB = 1 << 20


class Driver:
    """One worker that is up."""

    def __init__(self, process: WorkerProcess, started: Started) -> None:
        self.process, self.started = process, started
        self.seen: list[AsyncOutput] = []
        self.coming: dict[str, Any] = {}
        self.last_word: Ended | None = None
        self._count = 0

    def name(self, of: str = "r") -> str:
        self._count += 1
        return f"{of}{self._count}"

    # Asking -------------------------------------------------------------------

    def send_request(self, request: Any, **options: Any) -> str:
        name = self.name()
        self.process.channel.send(Execute(name, Pickled.of(request), **options))
        return name

    def send_batch(self, requests: dict[str, Any]) -> str:
        name = self.name("b")
        pickled = {
            key: value if isinstance(value, Pickled) else Pickled.of(value)
            for key, value in requests.items()
        }
        self.process.channel.send(ExecuteBatch(name, pickled))
        return name

    def send_call(self, method: str, *args: Any, drain: float | None = None, **kwargs: Any) -> str:
        name = self.name("c")
        self.process.channel.send(Call(name, method, Pickled.of((args, kwargs)), drain))
        return name

    def drop(self, *names: str) -> None:
        self.process.channel.send(Drop(names))

    # Hearing ------------------------------------------------------------------

    def hear(self, kind: Kind, name: str) -> AsyncOutput:
        """Return the message of this kind and id; keep those that come before it."""
        return self.hear_if(lambda message: (message.kind, message.id) == (kind, name))

    def hear_if(self, wanted: Callable[[AsyncOutput], bool]) -> AsyncOutput:
        deadline = time.monotonic() + PATIENCE
        while True:
            for at, message in enumerate(self.seen):
                if wanted(message):
                    return self.seen.pop(at)
            self.hear_one(deadline - time.monotonic())

    def hear_one(self, timeout: float = PATIENCE) -> AsyncOutput | Ended:
        message = self.process.channel.receive(timeout)
        if isinstance(message, Ended):
            self.last_word = message
        else:
            assert isinstance(message, AsyncOutput)
            self._enter(message)
        return message

    def _enter(self, message: AsyncOutput) -> None:
        """Unpack what is announced at once, as a parent does, and keep it until it is ready."""
        if message.kind is Kind.OUTPUT_COMING:
            self.coming[message.id] = self._unpacked(message)
            return
        if message.kind is Kind.DROPPED or message.error is not None:
            self.coming.pop(message.id, None)
        self.seen.append(message)

    def hear_what_is_there(self) -> None:
        with contextlib.suppress(TimeoutError):
            while True:
                self.hear_one(0.0)

    def hear_to_the_end(self) -> None:
        try:
            while True:
                self.hear_one()
        except ChannelClosedError:
            return

    def await_phase(self, name: str, phase: str) -> None:
        """Ask until the worker has an output where it should be; no other may be there."""
        deadline = time.monotonic() + PATIENCE
        rows: list[Any] = []
        while [(row["id"], row["phase"]) for row in rows] != [(name, phase)]:
            assert time.monotonic() < deadline, rows
            rows = self.call("omni.describe")

    def await_nothing_left(self) -> None:
        """Ask until everything was sent."""
        deadline = time.monotonic() + PATIENCE
        while left := self.call("omni.describe"):
            assert time.monotonic() < deadline, left

    def take_preview(self, name: str) -> None:
        self.process.channel.send(PreviewTaken(name))

    # Both ---------------------------------------------------------------------

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        answer = self.hear(Kind.RPC_RESULT, self.send_call(method, *args, **kwargs))
        if answer.error is not None:
            raise answer.error.restore()
        assert answer.result is not None
        return answer.result.load()

    def run(self, request: Any, **options: Any) -> Any:
        name = self.send_request(request, **options)
        done = self.hear(Kind.COMPUTE_DONE, name)
        if done.error is not None:
            raise done.error.restore()
        return self.output(name)

    def output(self, name: str) -> Any:
        return self.unpack(self.hear(Kind.OUTPUT_READY, name))

    def throw_away(self) -> None:
        """Give back what nobody heard."""
        for message in self.seen:
            if message.packet is not None and self.process.view is not None:
                self.process.view.discard(message.packet.data)
        self.seen.clear()

    def unpack(self, message: AsyncOutput) -> Any:
        if message.error is not None:
            raise message.error.restore()
        if message.packet is None:
            return self.coming.pop(message.id)
        return self._unpacked(message)

    def _unpacked(self, message: AsyncOutput) -> Any:
        assert message.packet is not None
        assert self.process.view is not None
        return self.process.view.unpack(message.packet.data)


def process_of(
    worker: str = "Worker",
    config: Any = None,
    platform: str | None = "cpu",
    environment: dict[str, str] | None = None,
    **options: Any,
) -> WorkerProcess:
    options.setdefault("arena_segment_bytes", MB)
    options.setdefault("arena_initial_bytes", MB)
    options.setdefault("arena_cap", 4 * MB)
    setup = Setup(f"tests.engine.workers:{worker}", Pickled.of(config), **options)
    return WorkerProcess(setup, platform, environment)


@contextmanager
def driven(*args: Any, **options: Any) -> Iterator[Driver]:
    """A worker that is up, and dead and gone afterwards."""
    process = process_of(*args, **options)
    driver = Driver(process, process.wait_started(120))
    try:
        yield driver
    finally:
        driver.seen.clear()
        assert process.kill()
        process.close()
