"""The ways of an output from its device to whoever reads it, each with its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from torch import Tensor

from omni_platforms.bench.check import Pattern
from omni_platforms.bench.common_path import BareCopy, CommonPath, blocking_copy
from omni_platforms.bench.consumer import Consumer
from omni_platforms.bench.consuming import Job, Received, read_pages
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forward import Producer
from omni_platforms.bench.segments import to_fresh_segment
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.waiting import waiting_for
from omni_platforms.shm import Arena

AT_HAND, READ = "until the consumer has the value", "until the consumer has read it"

BARE = "bare pinned copy"
BLOCKING = "blocking .cpu(), one process"
COMMON = "common async path"
QUEUE = "torch.multiprocessing queue"
ONE_PROCESS = "ours, one process"
ARENA, ENGINE = "ours, the arena alone", "ours, MultiprocExecutor"

_TIMEOUT_S = 60.0


class Ways:
    """All ways for outputs of one size, complete (`products` of 0) or behind products.

    Each returns seconds from the complete output to both ends, `AT_HAND` and `READ`, after
    it has been checked. Reading takes its time whoever made the copy, so each figure is held to
    the same figure of the bare copy.
    """

    def __init__(
        self,
        bench: Bench,
        nbytes: int,
        products: int,
        consumer: Consumer,
        arena: Arena,
        outputs: AsyncOutputExecutor,
        engine: MultiprocExecutor,
    ) -> None:
        self._platform, self._nbytes, self._products = bench.platform, nbytes, products
        self._consumer, self._arena = consumer, arena
        self._outputs, self._engine = outputs, engine
        self._pattern = Pattern(nbytes)
        self._producer = Producer(bench.platform, bench.device, nbytes)
        self._common = CommonPath(bench.platform, bench.device)
        self._bare = BareCopy(bench.platform, self._producer.complete(0)[0])
        self._seed = 0

    def all(self, segments: bool = True) -> Mapping[str, Callable[[], Mapping[str, float]]]:
        """Return the ways by name, without those through named segments where there are none."""
        ways: dict[str, Callable[[], Mapping[str, float]]] = {
            BARE: lambda: self._here(BARE, self._bare.run),
            BLOCKING: lambda: self._here(BLOCKING, blocking_copy),
            COMMON: lambda: self._there(COMMON, "common", self._send_common),
            QUEUE: lambda: self._there(QUEUE, "queue", self._send_queue),
            ONE_PROCESS: lambda: self._here(ONE_PROCESS, self._through_outputs),
            ARENA: lambda: self._there(ARENA, "arena", self._send_arena),
            ENGINE: self._through_engine,
        }
        if not segments:
            del ways[COMMON], ways[QUEUE]
        return ways

    # This process reads -------------------------------------------------------

    def _here(self, name: str, get: Callable[[Tensor], Tensor]) -> Mapping[str, float]:
        value, started = self._make()
        result = get(value)
        at_hand = perf_counter()
        read_pages(result)
        received = Received(at_hand, perf_counter())
        self._pattern.check(result, self._seed, name)
        return self._figures(started, received)

    def _through_outputs(self, value: Tensor) -> Tensor:
        result: Tensor = self._outputs.submit(value).result(_TIMEOUT_S)
        return result

    # The consumer reads -------------------------------------------------------

    def _there(self, name: str, way: str, send: Callable[[Tensor], None]) -> Mapping[str, float]:
        def start() -> float:
            value, started = self._make()
            send(value)
            return started

        job = Job(way, name, self._nbytes, self._seed + 1)
        started, received = self._consumer.take(job, start)
        return self._figures(started, received)

    def _send_common(self, value: Tensor) -> None:
        self._consumer.send(to_fresh_segment(self._common.start(value).wait()))

    def _send_queue(self, value: Tensor) -> None:
        self._consumer.put(blocking_copy(value))

    def _send_arena(self, value: Tensor) -> None:
        """Send the packet ahead where that can be, as the engine's workers do."""
        gate = self._platform.record_device_event()
        packing = self._arena.start(value, None if gate is None else (gate,))
        ahead = packing.announce() if packing.done is not None else None
        if ahead is not None:
            self._consumer.send((True, ahead.data))
        if gate is not None:
            with waiting_for("computing"):
                self._platform.synchronize_event(gate)
        with waiting_for("copying"):
            packet = packing.wait()
        self._consumer.send((False, packet.data) if ahead is None else None)

    # A worker makes, this process reads ---------------------------------------

    def _through_engine(self) -> Mapping[str, float]:
        self._seed += 1
        request = {"nbytes": self._nbytes, "seed": self._seed, "products": self._products}
        done = self._engine.execute_model(request)
        result = self._engine.wait_output_ready(done.async_output_id).result(_TIMEOUT_S)
        at_hand = perf_counter()
        read_pages(result)
        received = Received(at_hand, perf_counter())
        self._pattern.check(result, self._seed, ENGINE)
        (complete_at,) = self._engine.collective_rpc("complete_at", _TIMEOUT_S)
        return {AT_HAND: received.at_hand - complete_at, READ: received.read - complete_at}

    # All ----------------------------------------------------------------------

    def _make(self) -> tuple[Tensor, float]:
        """Return the next output, and when it was complete; behind products only `ended` knows."""
        self._seed += 1
        if self._products:
            return self._producer.behind_products(self._seed, self._products), 0.0
        return self._producer.complete(self._seed)

    def _figures(self, started: float, received: Any) -> Mapping[str, float]:
        complete_at = self._producer.ended() if self._products else started
        return {AT_HAND: received.at_hand - complete_at, READ: received.read - complete_at}
