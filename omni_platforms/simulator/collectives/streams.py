"""The internal streams on which collectives run, one for each device of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms.simulator.task import Queue, Task

if TYPE_CHECKING:
    from omni_platforms.simulator.runtime import Runtime


class CommStreams:
    """Streams that the caller never sees: an event on a current stream does not cover them.

    As in ProcessGroupNCCL and ProcessGroupHCCL (torch_npu 2.14.0,
    `ProcessGroupHCCL.cpp`): they wait for the current stream at the call, and
    the current stream waits for them at `Work.wait()`, both on the device.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._run: object = None
        self._queues: dict[int, Queue] = {}

    def after_current(self, device: int) -> Queue:
        """Return the stream of `device`, which now waits for the calling thread's current one."""
        scheduler = self._runtime.scheduler
        with self._runtime.gate:
            if self._run is not scheduler.timeline:  # streams last as long as a run
                self._run, self._queues = scheduler.timeline, {}
            if device not in self._queues:
                made = self._queues[device] = scheduler.new_queue(device, 0)
                made.name += " (of collectives)"
            queue = self._queues[device]
            ready = scheduler.submit(
                self._runtime.current_queue(device), "record for a collective", None
            )
            scheduler.submit(queue, "wait for the caller", None, waits_for=ready)
            return queue


def wait_on_device(runtime: Runtime, task: Task, label: str) -> None:
    """Make the calling thread's current stream wait for `task` of an internal stream."""
    if runtime.faults.now.invisible_comm_stream:
        return
    queue = runtime.current_queue(task.queue.key[0])
    runtime.scheduler.submit(queue, f"wait for {label}", None, waits_for=task)
