"""Graphs in the shape of vendors' modules: `torch.<device>.Graph`, `graph` and their helpers."""

from __future__ import annotations

import weakref
from types import TracebackType

import torch

from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.graphs.pool import PoolId
from omni_platforms.simulator.runtime import Runtime


class SimulatedGraph:
    """Captures the work of one stream, and enqueues it again at each `replay`.

    The names are those of `torch.cuda.CUDAGraph`; `torch.accelerator.Graph` is
    another way to the same. Every misuse raises `SimulatedCaptureError`.
    """

    def __init__(self, driver: Driver, keep_graph: bool = False) -> None:
        self._driver = driver
        self._number = driver.graph_create(keep_graph)
        weakref.finalize(self, driver.graph_destroy, self._number)

    def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """Capture what the calling thread's current stream gets from now on."""
        self._driver.graph_begin(self._number, *(pool or (0, 0)), capture_error_mode)

    def capture_end(self) -> None:
        """End the capture; raises where it was broken."""
        self._driver.graph_end(self._number)

    def instantiate(self) -> None:
        """Make a graph of `keep_graph=True` ready to run."""
        self._driver.graph_instantiate(self._number)

    def replay(self) -> None:
        """Enqueue the captured work on the current stream. Does not block."""
        self._driver.graph_replay(self._number)

    def reset(self) -> None:
        """Forget the captured work and give its memory back."""
        self._driver.graph_reset(self._number)

    def pool(self) -> PoolId:
        """Return the name of the graph's memory, for other graphs to share."""
        return self._driver.graph_pool(self._number)

    def enable_debug_mode(self) -> None:
        """Allow `debug_dump`."""
        self._driver.graph_enable_debug(self._number)

    def debug_dump(self, path: str) -> None:
        """Write the graph to `path` as a DOT file."""
        self._driver.graph_dump(self._number, path)


def graph_class(driver: Driver) -> type[SimulatedGraph]:
    """Return the graph class of one simulated accelerator."""

    class Graph(SimulatedGraph):
        """A graph of a simulated device; `keep_graph` leaves `instantiate` to the caller."""

        def __init__(self, keep_graph: bool = False) -> None:
            super().__init__(driver, keep_graph)

    return Graph


class GraphContext:
    """Captures inside a `with` block, on a side stream: `with torch.<device>.graph(g): ...`."""

    def __init__(
        self,
        driver: Driver,
        graph: SimulatedGraph,
        pool: PoolId | None,
        stream: torch.Stream | None,
        capture_error_mode: str,
    ) -> None:
        self._driver = driver
        self._graph = graph
        self._pool = pool
        self._stream = torch.Stream(driver.get_device()) if stream is None else stream
        self._mode = capture_error_mode

    def __enter__(self) -> None:
        driver, stream = self._driver, self._stream
        driver.wait_for_device(stream.device_index)
        driver.empty_cache()
        self._device = driver.exchange_device(stream.device_index)
        self._before = driver.exchange_stream(stream.device_index, stream.stream_id)
        try:
            self._graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._graph.capture_end()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._driver.exchange_stream(*self._before)
        self._driver.set_device(self._device)


class GraphFunctions:
    """A part of the device module."""

    _driver: Driver
    _runtime: Runtime
    Graph: type[SimulatedGraph]

    def is_current_stream_capturing(self) -> bool:
        """Whether the calling thread's current stream captures a graph."""
        return self._runtime.current_queue().capture is not None

    def graph_pool_handle(self) -> PoolId:
        """Return the name of a new memory pool, for several graphs to share."""
        return self._runtime.graphs.new_pool()

    def graph(
        self,
        graph: SimulatedGraph,
        pool: PoolId | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> GraphContext:
        """Return a context that captures `graph`, on `stream` or a stream of its own.

        Entering it waits for the device and gives cached memory back.
        """
        return GraphContext(self._driver, graph, pool, stream, capture_error_mode)
