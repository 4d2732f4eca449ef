"""The ways of an output from a forward to its consumer, as `pipeline` measures them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch

from omni_platforms.bench.common_worker import QUEUE_WAY, CommonWorker
from omni_platforms.bench.forwards import Request
from omni_platforms.bench.pipeline_worker import BLOCKING, Model, to_host
from omni_platforms.bench.reading import PatternReader, Reader
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.outputs import AsyncOutputExecutor

OUTPUT_TIMEOUT_S = 120.0


class Way(Protocol):
    """One way: `start` is called for one request after the other, `finish` in the same order."""

    def start(self, request: Request) -> Any:
        """Begin a request, or queue it; return what `finish` takes."""

    def finish(self, started: Any) -> Any:
        """Block until the output is on the host, and return it."""


class Blocking:
    """The forward and a blocking copy, in this process."""

    def __init__(self, forward: Model) -> None:
        self._forward = forward

    def start(self, request: Request) -> Any:
        """Run the forward and copy its output. Blocks until both are done."""
        return to_host(self._forward(request))

    def finish(self, started: Any) -> Any:
        """Return the output, which is here."""
        return started


class Executor:
    """The forward in this process, its output through `AsyncOutputExecutor`."""

    def __init__(self, forward: Model, outputs: AsyncOutputExecutor) -> None:
        self._forward = forward
        self._outputs = outputs

    def start(self, request: Request) -> Future[Any]:
        """Launch the forward and submit its output."""
        return self._outputs.submit(self._forward(request))

    def finish(self, started: Future[Any]) -> Any:
        """Wait for the copy."""
        return started.result(OUTPUT_TIMEOUT_S)


class Engine:
    """The forward in a worker process of `MultiprocExecutor`."""

    def __init__(self, executor: MultiprocExecutor, way: str = "device") -> None:
        self._executor = executor
        self._way = way

    def start(self, request: Request) -> str:
        """Queue the request; return its output's id."""
        return self._executor.submit(replace(request, way=self._way)).async_output_id

    def finish(self, started: str) -> Any:
        """Wait for the output."""
        return self._executor.wait_output_ready(started).result(OUTPUT_TIMEOUT_S)


class BlockingEngine(Engine):
    """The same, but the worker copies each output to the host before its next forward."""

    def __init__(self, executor: MultiprocExecutor) -> None:
        super().__init__(executor, BLOCKING)


class Common:
    """The common async path, with a worker process of its own."""

    def __init__(self, worker: CommonWorker) -> None:
        self._worker = worker

    def start(self, request: Request) -> None:
        """Send the request."""
        self._worker.send(request)

    def finish(self, started: None) -> torch.Tensor:
        """Receive the next output."""
        return self._worker.receive()


class TorchQueue:
    """A worker process that copies with blocking calls, and a queue of `torch.multiprocessing`."""

    def __init__(self, worker: CommonWorker) -> None:
        self._worker = worker

    def start(self, request: Request) -> None:
        """Send the request."""
        self._worker.send(replace(request, way=QUEUE_WAY))

    def finish(self, started: None) -> torch.Tensor:
        """Receive the next output."""
        return self._worker.receive_queued()


class Consumer:
    """Drives requests along a way and reads their outputs.

    With a `thread` the outputs are finished and read there, so that forwards which are launched
    on the calling thread go on meanwhile; without, on the calling thread. `reader` makes
    what reads them, given their way's name.
    """

    def __init__(
        self,
        thread: ThreadPoolExecutor | None = None,
        reader: Callable[[str], Reader] = PatternReader,
    ) -> None:
        self._thread = thread
        self._reader = reader

    def seconds(self, name: str, way: Way, requests: Sequence[Request], in_flight: int) -> float:
        """Return the seconds a request, from the first start until the last output is read.

        At most `in_flight` requests are started and not read. The first request is run once
        before the clock; the last output is checked in full behind it. Blocks. Raises `BenchError`
        for a wrong byte, and what the way raises.
        """
        reader = self._reader(name)
        self._drive(way, requests[:1], 1, reader)
        start = time.perf_counter()
        self._drive(way, requests[1:], in_flight, reader)
        taken = time.perf_counter() - start
        reader.check_last()
        return taken / (len(requests) - 1)

    def _drive(self, way: Way, requests: Sequence[Request], in_flight: int, reader: Reader) -> None:
        def take(started: Any, request: Request) -> None:
            reader.read(way.finish(started), request)

        waits: deque[Callable[[], None]] = deque()
        for request in requests:
            if len(waits) == in_flight:
                waits.popleft()()
            started = way.start(request)
            if self._thread is None or in_flight == 1:
                waits.append(partial(take, started, request))
            else:
                waits.append(self._thread.submit(take, started, request).result)
        while waits:
            waits.popleft()()
