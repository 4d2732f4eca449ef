"""What the C++ part calls: one method for each virtual of torch's device interface.

The names and arguments are those of `shim.cpp`. Streams come as device and
number, events and memory as integers; a negative device is the current one.
"""

from __future__ import annotations

import ctypes

import torch

from omni_platforms.simulator.graphs.calls import GraphCalls
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Queue, Span, StreamKey


class Driver(GraphCalls):
    """Answers torch for one `Runtime`. Called on any thread, with the GIL held."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._scheduler = runtime.scheduler
        self._threads = runtime.threads
        self._events = runtime.events
        self._memory = runtime.memory
        self._pinned = runtime.pinned

    def _queue(self, device: int, number: int) -> Queue:
        return self._scheduler.queue((self._threads.resolve(device), number))

    # Devices ------------------------------------------------------------------

    def device_count(self) -> int:
        """Count the devices."""
        return self._runtime.device_count

    def supported_dtypes(self) -> frozenset[torch.dtype]:
        """Return the types of numbers that the devices have."""
        return self._runtime.dtypes

    def get_device(self) -> int:
        """Return the calling thread's current device."""
        return self._threads.device

    def set_device(self, device: int) -> None:
        """Set the calling thread's current device."""
        self._threads.set_device(device)

    def exchange_device(self, device: int) -> int:
        """Set the calling thread's current device and return the one before."""
        return self._threads.exchange_device(device)

    def restore_device(self, device: int) -> None:
        """Set the current device back to what it was before `exchange_device`."""
        self._threads.set_device(device)

    def device_synchronize(self, device: int) -> None:
        """Block the host until all streams of `device` are done, where the vendor can."""
        self.wait_for_device(device)

    def wait_for_device(self, device: int) -> None:
        """Block the host until all streams of `device` are done."""
        device = self._threads.resolve(device)
        self._scheduler.captures.check_device(device)
        self._scheduler.host_wait_for_all(self._scheduler.queues(device), f"device {device}")

    # Streams ------------------------------------------------------------------

    def get_stream(self, device: int) -> StreamKey:
        """Return the calling thread's current stream on `device`."""
        return self._threads.stream(device)

    def get_default_stream(self, device: int) -> StreamKey:
        """Return the default stream of `device`."""
        return self._threads.resolve(device), 0

    def new_stream(self, device: int, priority: int) -> StreamKey:
        """Return a new stream."""
        return self._scheduler.new_queue(self._threads.resolve(device), priority).key

    def stream_priority(self, device: int, number: int) -> int:
        """Return the priority that the stream was made with."""
        return self._queue(device, number).priority

    def exchange_stream(self, device: int, number: int) -> StreamKey:
        """Set the calling thread's current stream and return the one before."""
        return self._threads.exchange_stream((device, number))

    def stream_query(self, device: int, number: int) -> bool:
        """Whether all work of the stream is done. Does not block."""
        queue = self._queue(device, number)
        self._scheduler.captures.check_host_call(f"a query of {queue}", queue.capture)
        return self._scheduler.poll(queue.last)

    def stream_synchronize(self, device: int, number: int) -> None:
        """Block the host until all work of the stream is done."""
        queue = self._queue(device, number)
        self._scheduler.captures.check_host_call(f"a wait for {queue}", queue.capture)
        self._scheduler.host_wait(queue.last, str(queue), asked=True)

    def stream_is_capturing(self, device: int, number: int) -> bool:
        """Whether the stream captures a graph."""
        return self._queue(device, number).capture is not None

    def stream_native_handle(self, device: int, number: int) -> int:
        """Return the vendor's handle of the stream, which here is its number."""
        return number

    # Events -------------------------------------------------------------------

    def event_record(
        self, event: int, device: int, number: int, event_device: int, timing: bool
    ) -> int:
        """Record an event (0: a new one) and return its number."""
        return self._events.record(event, self._queue(device, number))

    def event_block(self, event: int, device: int, number: int) -> None:
        """Make the stream wait for the event."""
        self._events.block(event, self._queue(device, number))

    def event_query(self, event: int) -> bool:
        """Whether the event is complete. Does not block."""
        return self._events.query(event)

    def event_synchronize(self, event: int) -> None:
        """Block the host until the event is complete."""
        self._events.synchronize(event)

    def event_destroy(self, event: int) -> None:
        """Forget the event."""
        self._events.destroy(event)

    def event_elapsed(self, start: int, end: int) -> float:
        """Return the milliseconds between two events."""
        return self._events.elapsed_ms(start, end)

    # Device memory ------------------------------------------------------------

    def malloc(self, nbytes: int, device: int) -> int:
        """Allocate device memory for the calling thread's current stream."""
        return self._memory.allocate(nbytes, self._runtime.current_queue(device))

    def free(self, pointer: int) -> None:
        """Free device memory."""
        self._memory.free(pointer)

    def record_stream(self, pointer: int, device: int, number: int) -> None:
        """Keep the memory until what the stream holds at its free is done."""
        self._memory.record_use(pointer, self._queue(device, number))

    def copy_bytes(self, to: int, source: int, nbytes: int) -> None:
        """Queue a copy between two blocks of device memory on the current stream."""
        block = self._memory.find(to)
        device = block.device if block is not None else -1

        def copy() -> None:
            ctypes.memmove(to, source, nbytes)

        self._scheduler.submit(
            self._runtime.current_queue(device),
            "copy of a storage",
            copy,
            reads=(Span(source, source + nbytes),),
            writes=(Span(to, to + nbytes),),
        )

    def device_of_pointer(self, pointer: int) -> int:
        """Return the device that owns the address; -1 where none does."""
        block = self._memory.find(pointer)
        return -1 if block is None else block.device

    def empty_cache(self) -> None:
        """Give cached device memory back. Waits for the devices."""
        self._memory.release_cached()

    def device_stats(self, device: int) -> dict[str, object]:
        """Return the allocator's statistics."""
        return self._memory.statistics[self._threads.resolve(device)].report()

    def reset_accumulated_stats(self, device: int) -> None:
        """Let the sums of the statistics be zero."""
        self._memory.statistics[self._threads.resolve(device)].reset_sums()

    def reset_peak_stats(self, device: int) -> None:
        """Let the peaks of the statistics be the current values."""
        self._memory.statistics[self._threads.resolve(device)].reset_peaks()

    def memory_free(self, device: int) -> int:
        """Return the free bytes of the device; cached ones are not free."""
        return self._memory.limit - self._memory.reserved(self._threads.resolve(device))

    def memory_total(self, device: int) -> int:
        """Return all bytes of the device."""
        return self._memory.limit

    # Pinned memory ------------------------------------------------------------

    def host_malloc(self, nbytes: int) -> int:
        """Allocate pinned memory."""
        return self._pinned.allocate(nbytes)

    def host_free(self, pointer: int) -> None:
        """Free pinned memory."""
        self._pinned.free(pointer)

    def host_record_stream(self, pointer: int, device: int, number: int) -> bool:
        """Keep the memory from reuse until what the stream holds now is done."""
        return self._pinned.record_use(pointer, self._queue(device, number).last)

    def host_empty_cache(self) -> None:
        """Give cached pinned memory back."""
        self._pinned.release_cached()

    def host_stat(self, name: str) -> int:
        """Return one statistic of the pinned allocator."""
        return self._pinned.statistics()[name]

    def host_stats(self) -> dict[str, int]:
        """Return all statistics of the pinned allocator."""
        return self._pinned.statistics()

    def host_reset_stats(self) -> None:
        """Reset the statistics of the pinned allocator."""
        self._pinned.reset_statistics()

    def is_pinned(self, pointer: int) -> bool:
        """Whether the address lies in pinned or registered memory."""
        return self._pinned.find(pointer) is not None
