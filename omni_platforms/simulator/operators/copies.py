"""Copies between the host and the devices, with CUDA's rules for who waits.

- To the device from pinned, contiguous memory: read when the task runs. From
  any other host memory: read at the call.
- To the host: asynchronous only with `non_blocking` into pinned memory that
  needs no temporary copy; otherwise the host waits.

Devices with faults (`faults.py`) treat ordinary memory like pinned memory, copy
on an engine of their own, or wait where they should not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from omni_platforms.simulator.blocks import checksum, fill_with_poison
from omni_platforms.simulator.graphs.captures import refuse_pageable
from omni_platforms.simulator.operators.regions import (
    Region,
    device_region,
    host_region,
    is_dense,
    spans,
)
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import COPY_TO_HOST, Queue, Task


class Copies:
    """The copy operators of one simulated accelerator."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._scheduler = runtime.scheduler

    def copy(
        self, source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
    ) -> torch.Tensor:
        """Copy `source` into `target`, of which at least one is on a simulated device."""
        if target.numel() == 0:
            return target
        if source.size() != target.size():
            source = source.expand(target.size())
        if source.device.type == target.device.type:
            self._on_device(source, target)
        elif target.device.type == self._runtime.name:
            self._to_device(source, target, non_blocking)
        else:
            self._to_host(source, target, non_blocking)
        return target

    def copy_and_resize(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Give `target` the shape of `source` and copy."""
        target.resize_(source.size())
        return self.copy(source, target)

    def item(self, tensor: torch.Tensor) -> object:
        """Return the number in a tensor of one element; the host waits."""
        region = device_region(self._runtime.memory, tensor)
        found: list[object] = []
        task = self._scheduler.submit(
            self._runtime.current_queue(tensor.device.index),
            "item",
            lambda: found.append(region.tensor().item()),
            reads=spans(tensor),
        )
        self._scheduler.host_wait(task, "item")
        return found[0]

    def _on_device(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """On the source's stream; between devices, the target's stream comes before and after."""
        queue = self._runtime.current_queue(source.device.index)
        other = self._runtime.current_queue(target.device.index)
        self._scheduler.fence(queue, other)
        self._scheduler.submit(
            queue,
            "copy on device",
            _copier(self._device(source), self._device(target)),
            reads=spans(source),
            writes=spans(target),
        )
        self._scheduler.fence(other, queue)

    def _to_device(self, source: torch.Tensor, target: torch.Tensor, non_blocking: bool) -> None:
        pinned = source.is_pinned()
        async_anyway = non_blocking and self._runtime.faults.now.pageable_copy_async
        late = (pinned or async_anyway) and _is_direct(source, target)
        if not late or not pinned:
            refuse_pageable(self._runtime.current_queue(target.device.index), "a copy to device")
        if not late:  # staged: the host's memory may change as soon as the call is over
            source = source.detach().clone()
        copy = _copier(host_region(source), self._device(target), borrowed=late and not pinned)
        queue = self._runtime.current_queue(target.device.index)
        task = self._scheduler.submit(
            queue,
            "copy to device",
            self._watched(queue, source, copy) if late and pinned else copy,
            reads=spans(source) if late else (),
            writes=spans(target),
        )
        if late:
            self._use_pinned(source, task)
        if not non_blocking:
            self._scheduler.host_wait(task, "copy to device")

    def _to_host(self, source: torch.Tensor, target: torch.Tensor, non_blocking: bool) -> None:
        pinned, faults = target.is_pinned(), self._runtime.faults.now
        may_be_late = non_blocking and (pinned or faults.pageable_copy_async)
        late = may_be_late and _is_direct(target, source)
        queue = self._runtime.current_queue(source.device.index)
        if "copy-to-host" in faults.hidden_host_syncs:
            self._scheduler.host_wait(queue.last, "hidden in a copy to the host")
        if not pinned:
            refuse_pageable(queue, "a copy to host")
        if late and queue.capture is not None:
            queue.capture.before_replay.append(lambda: self._scribble(target))
        elif late:
            self._scribble(target)
            queue = self._engine(queue) if faults.dma_outside_event else queue
        task = self._scheduler.submit(
            queue,
            COPY_TO_HOST,
            _copier(self._device(source), host_region(target)),
            reads=spans(source),
            writes=spans(target) if pinned else (),
        )
        if pinned:
            self._use_pinned(target, task)
        if not late:
            self._scheduler.host_wait(task, "copy to host")

    def _watched(
        self, queue: Queue, source: torch.Tensor, copy: Callable[[], None]
    ) -> Callable[[], None]:
        """Return `copy` with a look at whether the host has changed its pinned source by then."""
        block, detector = self._runtime.pinned.find(source.data_ptr()), self._scheduler.detector
        if queue.capture is not None:
            return copy  # the host may refill it before each replay
        writer = None if block is None else block.writer
        if block is None or detector is None or (writer is not None and not writer.done):
            return copy
        (span,) = spans(source)
        before = checksum(span.low, span.high - span.low)

        def look_and_copy() -> None:
            task = self._scheduler.now_running
            by_host = block.writer is writer
            if task and by_host and checksum(span.low, span.high - span.low) != before:
                detector.host_overwrote(task)
            copy()

        return look_and_copy

    def _engine(self, queue: Queue) -> Queue:
        """Return the copy engine, which comes after what `queue` holds now, and not before more."""
        engine = self._runtime.copy_engine(queue)
        self._scheduler.fence(engine, queue)
        return engine

    def _device(self, tensor: torch.Tensor) -> Region:
        return device_region(self._runtime.memory, tensor)

    def _use_pinned(self, tensor: torch.Tensor, task: Task) -> None:
        self._runtime.pinned.record_use(tensor.data_ptr(), task)

    def _scribble(self, target: torch.Tensor) -> None:
        """Make the target of a pending copy undefined now, as it may be until the copy is done.

        Otherwise what it held before could look like the right answer.
        """
        block = self._runtime.pinned.find(target.data_ptr())
        with self._runtime.gate:
            pending = [] if block is None else block.unfinished()
            if any(task.capture is None for task in pending):
                return
            if target.is_contiguous():
                fill_with_poison(target.data_ptr(), target.numel() * target.element_size())


def _is_direct(host: torch.Tensor, device: torch.Tensor) -> bool:
    """Whether a copy moves the bytes of `host` as they are, without a temporary on the host."""
    if host.is_contiguous():
        return True
    same = host.dtype == device.dtype and host.stride() == device.stride()
    return same and is_dense(host)


def _copier(source: Region, target: Region, *, borrowed: bool = False) -> Callable[[], None]:
    """Return the copy. With `borrowed`, the source is undefined once its owner has let it go."""

    def copy() -> None:
        if borrowed:
            source.poison_if_abandoned()
        target.tensor().copy_(source.tensor())

    return copy
