"""The graphs of the process, by number, as torch's graph objects ask for them."""

from __future__ import annotations

from dataclasses import dataclass

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator.device_memory import DeviceMemory
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.graphs.capture import MODES, Capture
from omni_platforms.simulator.graphs.graph import RecordedGraph, finish
from omni_platforms.simulator.graphs.pool import GraphPool, GraphPools, PoolId
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Queue


@dataclass
class _Entry:
    keep: bool
    capture: Capture | None = None
    graph: RecordedGraph | None = None
    instantiated: bool = False
    debug: bool = False
    pool: PoolId = (0, 0)


class GraphTable:
    """Captures, replays and forgets graphs. Any thread may call any method; none blocks.

    Every misuse raises `SimulatedCaptureError`.
    """

    def __init__(self, gate: Gate, scheduler: Scheduler, memory: DeviceMemory) -> None:
        self._gate = gate
        self._scheduler = scheduler
        self._captures = scheduler.captures
        self._memory = memory
        self._pools = GraphPools()
        self._entries: dict[int, _Entry] = {}
        self._made = 0

    def start_run(self) -> None:
        """End the captures of earlier runs; their graphs stay."""
        for entry in self._entries.values():
            if entry.capture is not None:
                self._leave(entry.capture)
                self._drop_pool(entry.capture.pool)
                entry.capture = None

    def create(self, keep: bool) -> int:
        """Return the number of a new graph. `keep` leaves `instantiate` to the caller."""
        with self._gate:
            self._made += 1
            self._entries[self._made] = _Entry(keep)
            return self._made

    def begin(self, number: int, queue: Queue, pool: PoolId, mode: str) -> None:
        """Capture what is enqueued on `queue` from now on, into the memory of `pool`."""
        with self._gate:
            entry = self._entries[number]
            if mode not in MODES:
                raise SimulatedCaptureError(f"{mode!r} is not a capture mode. Use one of {MODES}.")
            if entry.graph is not None or entry.capture is not None:
                raise SimulatedCaptureError(
                    "this graph object has a capture already. Call reset() first, or make another."
                )
            if queue.capture is not None or queue.key[1] == 0:
                why = "captures already" if queue.capture else "is a default stream"
                raise SimulatedCaptureError(
                    f"{queue} {why}: capture on a side stream of its own (with stream, graph: ...)."
                )
            entry.capture = Capture(queue, self._pools.enter(pool), mode)
            entry.pool = entry.capture.pool.number
            self._captures.active.append(entry.capture)
            self._scheduler.timeline.host(f"begins {entry.capture}")

    def end(self, number: int, queue: Queue) -> None:
        """End the capture, which must be on `queue`; a broken one raises and leaves no graph."""
        with self._gate:
            entry = self._entries[number]
            capture = entry.capture
            if capture is None:
                raise SimulatedCaptureError("this graph object does not capture: nothing to end.")
            entry.capture = None
            self._leave(capture)
            try:
                if queue is not capture.origin:
                    capture.broken = capture.broken or f"an end on {queue}"
                entry.graph = finish(number, capture)
            except SimulatedCaptureError:
                self._drop_pool(capture.pool)
                raise
            entry.instantiated = not entry.keep

    def instantiate(self, number: int) -> None:
        """Make a kept graph ready to run; `replay` does it otherwise."""
        with self._gate:
            entry = self._entries[number]
            if entry.graph is None or not entry.keep:
                raise SimulatedCaptureError(
                    "instantiate() is for a captured graph that was made with keep_graph=True."
                )
            entry.instantiated = True

    def replay(self, number: int, queue: Queue) -> None:
        """Enqueue the captured work on `queue`."""
        with self._gate:
            entry = self._entries[number]
            entry.instantiated = True
            self._captured(number).replay(self._scheduler, queue)

    def reset(self, number: int) -> None:
        """Forget the captured work; the graph's memory is given back."""
        with self._gate:
            entry = self._entries[number]
            if entry.capture is not None:
                self._leave(entry.capture)
                self._drop_pool(entry.capture.pool)
            if entry.graph is not None:
                entry.graph.release()
                self._drop_pool(entry.graph.pool)
            self._entries[number] = _Entry(entry.keep, debug=entry.debug)

    def destroy(self, number: int) -> None:
        """Forget the graph object."""
        with self._gate:
            self.reset(number)
            del self._entries[number]

    def pool(self, number: int) -> PoolId:
        """Return the number of the graph's memory pool."""
        self._captured(number)
        return self._entries[number].pool

    def new_pool(self) -> PoolId:
        """Return the number of a pool for several graphs."""
        with self._gate:
            return self._pools.new_number()

    def enable_debug(self, number: int) -> None:
        """Allow `dump`."""
        self._entries[number].debug = True

    def dump(self, number: int, path: str) -> None:
        """Write the graph as a DOT file, where debugging is enabled."""
        if not self._entries[number].debug:
            raise SimulatedCaptureError("call enable_debug_mode() before the capture.")
        self._captured(number).dump(path)

    def _captured(self, number: int) -> RecordedGraph:
        graph = self._entries[number].graph
        if graph is None:
            raise SimulatedCaptureError(
                "this graph holds no captured work: capture first, and see that it succeeds."
            )
        return graph

    def _leave(self, capture: Capture) -> None:
        if capture in self._captures.active:
            self._captures.active.remove(capture)
        capture.end()

    def _drop_pool(self, pool: GraphPool) -> None:
        if self._pools.leave(pool):
            self._memory.adopt(pool)
