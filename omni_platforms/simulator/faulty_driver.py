"""The driver of a device that may have faults (see `faults.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.faults import (
    ERRORS,
    GENERIC_METHODS,
    HOST_SYNC_PRIMITIVES,
    MODULE_PREFIX,
    Faults,
    split_missing,
)
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import NEVER, Queue, StreamKey


class _Guard(threading.local):
    # torch.Stream(device=...) makes the device current while it makes the stream
    # (torch 2.13, `torch/csrc/Stream.cpp`); this is the one before, -1 outside.
    device_outside = -1


class FaultyDriver(Driver):
    """A driver with the faults that are on in its runtime; without any, the plain one."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._faults = runtime.faults
        self._guard = _Guard()
        self._replaced: list[str] = []

    def replace_methods(self, faults: Faults, *, generic: bool) -> None:
        """Put hidden waits into methods, and, with `generic`, take away those that are missing.

        Generic calls are those that come from torch's own interface.
        """
        for method in self._replaced:
            vars(self).pop(method, None)
        self._replaced = []
        for name in faults.hidden_host_syncs:
            method = HOST_SYNC_PRIMITIVES[name]
            if method:
                self._replace(method, self._waiting_first(method))
        for item in faults.missing_methods if generic else ():
            name, error = split_missing(item)
            if not name.startswith(MODULE_PREFIX):
                self._replace(GENERIC_METHODS[name], _missing(name, error))

    def _replace(self, method: str, by: Callable[..., Any]) -> None:
        vars(self)[method] = by
        self._replaced.append(method)

    def _waiting_first(self, method: str) -> Callable[..., Any]:
        plain = getattr(type(self), method).__get__(self)

        def wait_first(*args: Any) -> Any:
            queues = self._scheduler.queues(self._threads.device)
            self._scheduler.host_wait_for_all(queues, f"hidden in {method}")
            return plain(*args)

        return wait_first

    # Devices and streams ------------------------------------------------------

    def set_device(self, device: int) -> None:
        """Set the calling thread's current device."""
        if not self._faults.now.set_device_noop:
            super().set_device(device)

    def new_stream(self, device: int, priority: int) -> StreamKey:
        """Return a new stream."""
        if self._faults.now.stream_ignores_index:
            device = self._guard.device_outside
        return super().new_stream(device, priority)

    def exchange_device(self, device: int) -> int:
        """Set the calling thread's current device and return the one before."""
        self._guard.device_outside = super().exchange_device(device)
        return self._guard.device_outside

    def restore_device(self, device: int) -> None:
        """Set the current device back to what it was before `exchange_device`."""
        self._guard.device_outside = -1
        super().restore_device(device)

    def stream_query(self, device: int, number: int) -> bool:
        """Whether all work of the stream, its copy engine included, is done. Does not block."""
        engine = self._copy_engine(device, number)
        done = super().stream_query(device, number)
        return done and (engine is None or self._scheduler.poll(engine.last))

    def stream_synchronize(self, device: int, number: int) -> None:
        """Block the host until all work of the stream, its copy engine included, is done."""
        engine = self._copy_engine(device, number)
        if engine is None:
            super().stream_synchronize(device, number)
        else:
            stream = self._queue(device, number)
            self._scheduler.host_wait_for_all([stream, engine], str(stream))

    def _copy_engine(self, device: int, number: int) -> Queue | None:
        if not self._faults.now.dma_outside_event:
            return None
        return self._runtime.copy_engine(self._queue(device, number))

    # Events -------------------------------------------------------------------

    def event_block(self, event: int, device: int, number: int) -> None:
        """Make the stream wait for the event."""
        queue, faults = self._queue(device, number), self._faults.now
        record = self._events.task(event)
        if record is None and faults.wait_before_record_hangs:
            self._scheduler.submit(queue, "wait for an event never recorded", None, waits_for=NEVER)
        elif record is not None and record.queue is queue and faults.same_stream_wait_raises:
            raise RuntimeError(f"event {event} was recorded on {queue}, which cannot wait for it")
        else:
            super().event_block(event, device, number)

    def event_synchronize(self, event: int) -> None:
        """Block the host until the event is complete."""
        super().event_synchronize(event)
        if self._faults.now.missed_wakeup:
            self._faults.hang(f"event {event}")

    # Pinned memory ------------------------------------------------------------

    def host_malloc(self, nbytes: int) -> int:
        """Allocate pinned memory."""
        faults = self._faults.now
        if faults.pin_raises:
            raise RuntimeError(f"the device cannot pin {nbytes} bytes of host memory")
        return super().host_malloc(2 * nbytes if faults.pin_rounds_up else nbytes)

    def is_pinned(self, pointer: int) -> bool:
        """Whether the address lies in pinned or registered memory."""
        return not self._faults.now.no_pin and super().is_pinned(pointer)


def _missing(name: str, error: str) -> Callable[..., NoReturn]:
    def missing(*args: Any) -> NoReturn:
        raise ERRORS[error](f"{name} is not implemented by this device")

    return missing
