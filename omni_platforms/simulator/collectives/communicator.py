"""Collectives between the devices of one process, for code under `explore`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.collectives.streams import CommStreams, wait_on_device
from omni_platforms.simulator.operators.regions import Region, all_spans, device_region, spans
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Task

_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda stacked: stacked.sum(0),
    "avg": lambda stacked: stacked.mean(0),
    "max": lambda stacked: stacked.amax(0),
    "min": lambda stacked: stacked.amin(0),
    "product": lambda stacked: stacked.prod(0),
}
Compute = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class CollectiveWork:
    """One collective under way. It must be waited for, on each stream that uses its results."""

    def __init__(self, runtime: Runtime, label: str, ends: list[Task]) -> None:
        self._runtime = runtime
        self._label = label
        self._ends = ends

    def wait(self) -> bool:
        """Make the current stream of each device wait for the result. Does not block the host."""
        for task in self._ends:
            wait_on_device(self._runtime, task, self._label)
        return True

    def is_completed(self) -> bool:
        """Whether the results are there. Does not block."""
        return all([self._runtime.scheduler.poll(task) for task in self._ends])


class Communicator:
    """Joins devices of this process, each of which brings one tensor to a collective.

    `async_op=True` returns a `CollectiveWork`; otherwise the current streams
    wait for the result, which does not block the host either.
    """

    def __init__(self, runtime: Runtime, devices: Sequence[int]) -> None:
        if len(set(devices)) != len(devices) or not devices:
            raise SimulatorStateError(f"{list(devices)} are not different devices. Name each once.")
        self._runtime = runtime
        self._devices = list(devices)
        self._streams = CommStreams(runtime)

    def all_reduce(
        self, tensors: Sequence[torch.Tensor], op: str = "sum", *, async_op: bool = False
    ) -> CollectiveWork | None:
        """Replace each tensor by the reduction of all: sum, avg, max, min or product."""
        if op not in _REDUCTIONS:
            raise SimulatorStateError(f"{op!r} is no reduction. Use one of {sorted(_REDUCTIONS)}.")

        def compute(values: list[torch.Tensor]) -> list[torch.Tensor]:
            reduced = _REDUCTIONS[op](torch.stack(values)).to(values[0].dtype)
            return [reduced] * len(values)

        return self._run("all_reduce", tensors, tensors, compute, async_op)

    def all_gather(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        *,
        async_op: bool = False,
    ) -> CollectiveWork | None:
        """Write all inputs, stacked in the order of the devices, into each output."""

        def compute(values: list[torch.Tensor]) -> list[torch.Tensor]:
            return [torch.stack(values)] * len(values)

        return self._run("all_gather", inputs, outputs, compute, async_op)

    def broadcast(
        self, tensors: Sequence[torch.Tensor], root: int = 0, *, async_op: bool = False
    ) -> CollectiveWork | None:
        """Copy the tensor at place `root` into the others."""

        def compute(values: list[torch.Tensor]) -> list[torch.Tensor]:
            return [values[root].clone()] * len(values)

        return self._run("broadcast", tensors, tensors, compute, async_op)

    def _run(
        self,
        label: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        compute: Compute,
        async_op: bool,
    ) -> CollectiveWork | None:
        """Meet on the first device's stream, compute there, and write on each device's own."""
        self._check(inputs, outputs)
        scheduler = self._runtime.scheduler
        with self._runtime.gate:
            queues = [self._streams.after_current(device) for device in self._devices]
            for queue in queues[1:]:
                scheduler.fence(queues[0], queue)
            sources = [self._region(tensor) for tensor in inputs]
            found: list[torch.Tensor] = []

            def meet() -> None:
                found[:] = compute([source.tensor() for source in sources])

            scheduler.submit(queues[0], label, meet, reads=all_spans(list(inputs)))
            ends = []
            for place, (queue, output) in enumerate(zip(queues, outputs, strict=True)):
                scheduler.fence(queue, queues[0])
                write = _writer(self._region(output), found, place)
                ends.append(
                    scheduler.submit(queue, f"{label} (result)", write, writes=spans(output))
                )
            for tensor in (*inputs, *outputs):
                for queue in queues:
                    self._runtime.memory.record_use(tensor.untyped_storage().data_ptr(), queue)
        work = CollectiveWork(self._runtime, label, ends)
        if async_op:
            return work
        work.wait()
        return None

    def _check(self, *groups: Sequence[torch.Tensor]) -> None:
        for tensors in groups:
            if [tensor.device.index for tensor in tensors] != self._devices:
                raise SimulatorStateError(
                    f"this communicator takes one tensor on each of the devices {self._devices}, "
                    f"in this order, and got {[str(tensor.device) for tensor in tensors]}."
                )

    def _region(self, tensor: torch.Tensor) -> Region:
        return device_region(self._runtime.memory, tensor)


def _writer(target: Region, found: list[Any], place: int) -> Callable[[], None]:
    def write() -> None:
        target.tensor().copy_(found[place])

    return write
