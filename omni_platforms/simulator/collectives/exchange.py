"""One collective with other processes: its data leave through gloo and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from omni_platforms.simulator.collectives.progress import Progress
from omni_platforms.simulator.collectives.streams import CommStreams, wait_on_device
from omni_platforms.simulator.operators.regions import Region, all_spans, device_region
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Task

ToHost = Callable[[torch.Tensor], torch.Tensor]
"""Gives the host tensor that stands for a device tensor in the exchange."""
Start = Callable[[Any, ToHost], Any]
"""Starts the exchange on host tensors with a gloo group; returns gloo's work."""


class Exchange:
    """Two tasks of an internal stream: the first starts the exchange, the second ends it.

    The first copies the device's data; it runs when they are there, and does not
    wait for the other processes. The second writes the results.
    """

    def __init__(
        self,
        runtime: Runtime,
        gloo: Any,
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
    ) -> None:
        self._gloo = gloo
        self._writes = list(writes)
        self._reads = list(reads)
        self._regions: dict[int, Region] = {
            id(tensor): device_region(runtime.memory, tensor) for tensor in (*reads, *writes)
        }
        self._host: dict[int, torch.Tensor] = {}
        self._targets = [(id(tensor), self._regions[id(tensor)]) for tensor in self._writes]
        self._work: Any = None

    def enqueue(
        self,
        runtime: Runtime,
        streams: CommStreams,
        progress: Progress,
        label: str,
        start: Start,
    ) -> Task:
        """Put both tasks on the internal stream, after the caller's; return the last."""
        tensors = [*self._reads, *self._writes]
        with runtime.gate:
            queue = streams.after_current(tensors[0].device.index)
            leaves = runtime.scheduler.submit(
                queue,
                f"{label} (leaves)",
                lambda: self._begin(start),
                reads=all_spans(self._reads),
            )
            progress.later(leaves)
            for tensor in tensors:
                runtime.memory.record_use(tensor.untyped_storage().data_ptr(), queue)
            return runtime.scheduler.submit(
                queue, label, self._finish, writes=all_spans(self._writes), ready=self._is_ready
            )

    def _begin(self, start: Start) -> None:
        self._host = {key: region.tensor().clone() for key, region in self._regions.items()}
        self._work = start(self._gloo, lambda tensor: self._host[id(tensor)])

    def _is_ready(self) -> bool:
        return self._work is None or bool(self._work.is_completed())

    def _finish(self) -> None:
        if self._work is None:  # it did not start; that task's fault is reported
            return
        self._work.wait()
        for key, region in self._targets:
            region.tensor().copy_(self._host[key])


class ExchangeWork(dist.Work):
    """What `async_op=True` returns. `wait` makes the current stream wait, not the host."""

    def __init__(
        self, runtime: Runtime, label: str, end: Task, results: Sequence[torch.Tensor]
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._label = label
        self._end = end
        self._results = list(results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Make the calling thread's current stream wait for the results."""
        wait_on_device(self._runtime, self._end, self._label)
        return True

    def synchronize(self) -> None:
        """The same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the results are there. Does not block."""
        return self._runtime.scheduler.poll(self._end)

    def is_success(self) -> bool:
        """The same as `is_completed`: a failure is raised at a wait of the host."""
        return self.is_completed()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that the collective writes."""
        return self._results

    def get_future(self) -> Any:
        """Return a future of the results, in the order of the stream that is current now."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._results)
        return future
