"""Copies between the host and the devices, with CUDA's rules for who waits.

- To the device from pinned, contiguous memory: read when the task runs. From
  any other host memory: read at the call.
- To the host: asynchronous only with `non_blocking` into pinned memory that
  needs no temporary copy; otherwise the host waits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from omni_platforms.simulator.blocks import fill_with_poison
from omni_platforms.simulator.graphs.captures import refuse_pageable
from omni_platforms.simulator.operators.regions import (
    Region,
    device_region,
    host_region,
    is_dense,
    spans,
)
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Task


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
        late = pinned and _is_direct(source, target)
        if not late:
            refuse_pageable(self._runtime.current_queue(target.device.index), "a copy to device")
        if not late:  # staged: the host's memory may change as soon as the call is over
            source = source.detach().clone()
        task = self._scheduler.submit(
            self._runtime.current_queue(target.device.index),
            "copy to device",
            _copier(host_region(source), self._device(target)),
            reads=spans(source) if late else (),
            writes=spans(target),
        )
        if late:
            self._use_pinned(source, task)
        if not non_blocking:
            self._scheduler.host_wait(task, "copy to device")

    def _to_host(self, source: torch.Tensor, target: torch.Tensor, non_blocking: bool) -> None:
        pinned = target.is_pinned()
        late = non_blocking and pinned and _is_direct(target, source)
        queue = self._runtime.current_queue(source.device.index)
        if late and queue.capture is not None:
            queue.capture.before_replay.append(lambda: self._scribble(target))
        elif late:
            self._scribble(target)
        elif not pinned:
            refuse_pageable(queue, "a copy to host")
        task = self._scheduler.submit(
            queue,
            "copy to host",
            _copier(self._device(source), host_region(target)),
            reads=spans(source),
            writes=spans(target) if pinned else (),
        )
        if pinned:
            self._use_pinned(target, task)
        if not late:
            self._scheduler.host_wait(task, "copy to host")

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
            if block is None or any(task.capture is None for task in block.unfinished()):
                return
            if target.is_contiguous():
                fill_with_poison(target.data_ptr(), target.numel() * target.element_size())


def _is_direct(host: torch.Tensor, device: torch.Tensor) -> bool:
    """Whether a copy moves the bytes of `host` as they are, without a temporary on the host."""
    if host.is_contiguous():
        return True
    same = host.dtype == device.dtype and host.stride() == device.stride()
    return same and is_dense(host)


def _copier(source: Region, target: Region) -> Callable[[], None]:
    def copy() -> None:
        target.tensor().copy_(source.tensor())

    return copy
