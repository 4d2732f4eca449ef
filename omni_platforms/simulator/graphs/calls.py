"""The part of the driver that is about graphs: what `shim_graph.h` and the device module call."""

from __future__ import annotations

from omni_platforms.simulator.graphs.capture import MODES
from omni_platforms.simulator.graphs.pool import PoolId
from omni_platforms.simulator.runtime import Runtime

_MODE_OF_TORCH = ("global", *MODES)
"""By torch's number (`at::GraphCaptureMode`); 0 is the backend's default, here CUDA's."""


class GraphCalls:
    """Graphs by number, on the calling thread's current stream. See `GraphTable`."""

    _runtime: Runtime

    def graph_create(self, keep: bool) -> int:
        """Return the number of a new graph."""
        return self._runtime.graphs.create(keep)

    def graph_begin(self, graph: int, first: int, second: int, mode: int | str) -> None:
        """Begin to capture into the pool `(first, second)`."""
        name = _MODE_OF_TORCH[mode] if isinstance(mode, int) else mode
        queue = self._runtime.current_queue()
        self._runtime.graphs.begin(graph, queue, (first, second), name)

    def graph_end(self, graph: int) -> None:
        """End the capture."""
        self._runtime.graphs.end(graph, self._runtime.current_queue())

    def graph_instantiate(self, graph: int) -> None:
        """Make a kept graph ready to run."""
        self._runtime.graphs.instantiate(graph)

    def graph_replay(self, graph: int) -> None:
        """Enqueue the captured work."""
        self._runtime.graphs.replay(graph, self._runtime.current_queue())

    def graph_reset(self, graph: int) -> None:
        """Forget the captured work."""
        self._runtime.graphs.reset(graph)

    def graph_pool(self, graph: int) -> PoolId:
        """Return the number of the graph's memory pool."""
        return self._runtime.graphs.pool(graph)

    def graph_enable_debug(self, graph: int) -> None:
        """Allow `graph_dump`."""
        self._runtime.graphs.enable_debug(graph)

    def graph_dump(self, graph: int, path: str) -> None:
        """Write the graph as a DOT file."""
        self._runtime.graphs.dump(graph, path)

    def graph_destroy(self, graph: int) -> None:
        """Forget the graph."""
        self._runtime.gate.when_released(lambda: self._runtime.graphs.destroy(graph))
