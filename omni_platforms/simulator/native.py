"""The vendor's own classes of streams and events, beside torch's generic ones.

A vendor's event derives from `torch.Event` and keeps its record to itself: the
generic base is never recorded, so that `torch.Stream.wait_event` ignores it
without a word (torch 2.13, `torch/csrc/Stream.cpp` and `c10/core/impl/InlineEvent.h`).
Here that is the fault `native-event-ignored`; without it the base is recorded
too, and both classes work with both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.fault_state import FaultState

PRIVATE_USE_1 = 20
"""torch's number of the device type (`c10/core/DeviceType.h`)."""


def stream_class(index_of: Callable[[Any], int], driver: Driver) -> type[torch.Stream]:
    """Return the class of streams for a module whose devices `index_of` resolves."""

    class Stream(torch.Stream):
        """A stream of a simulated device."""

        def __new__(cls, device: Any = None, priority: int = 0, **key: int) -> Stream:
            """Make a new stream, or wrap the one of `stream_id` and `device_index`."""
            if not key:
                index, number = driver.new_stream(index_of(device), priority)
                key = {"stream_id": number, "device_index": index}
            key.setdefault("device_type", PRIVATE_USE_1)
            return super().__new__(cls, **key)

        def wait_event(self, event: torch.Event) -> None:
            """Make this stream wait for an event of either class."""
            event.wait(self)

    return Stream


def event_class(name: str, driver: Driver, faults: FaultState) -> type[torch.Event]:
    """Return the class of events for the device type `name`."""

    class Event(torch.Event):
        """An event of a simulated device. Streams default to the calling thread's current one."""

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> Event:
            """Make an event that is not recorded yet."""
            made = super().__new__(
                cls,
                device=name,
                enable_timing=enable_timing,
                blocking=blocking,
                interprocess=interprocess,
            )
            made.has_timing = enable_timing
            return made

        has_timing: bool
        _own = 0  # the record that torch's base does not know of
        _recorded = False

        def record(self, stream: torch.Stream | None = None) -> None:
            """Record the event on `stream`."""
            self._recorded = True
            if faults.now.native_event_ignored:
                device, number = _key(stream, driver)
                self._own = driver.event_record(self._own, device, number, device, False)
            else:
                super().record(stream)

        def wait(self, stream: torch.Stream | None = None) -> None:
            """Make `stream` wait for the event; nothing where it was never recorded."""
            if self._own or not self._recorded:
                driver.event_block(self._own, *_key(stream, driver))
            else:
                super().wait(stream)

        def query(self) -> bool:
            """Whether the work before the record is done. Does not block."""
            return driver.event_query(self._own) if self._own else super().query()

        def synchronize(self) -> None:
            """Block the host until the work before the record is done."""
            if self._own:
                driver.event_synchronize(self._own)
            else:
                super().synchronize()

        def elapsed_time(self, other: torch.Event) -> float:
            """Return the milliseconds to `other`, which must be complete, as must this event.

            `torch.Event` has this for its own exact type only.
            """
            if not (self.has_timing and getattr(other, "has_timing", False)):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            numbers = [getattr(event, "_own", 0) or event.event_id for event in (self, other)]
            if not all(numbers):
                raise ValueError("Both events must be recorded before their time is asked for.")
            return driver.event_elapsed(*numbers)

        def __del__(self) -> None:
            if self._own:
                driver.event_destroy(self._own)

    return Event


def _key(stream: torch.Stream | None, driver: Driver) -> tuple[int, int]:
    if stream is None:
        return driver.get_stream(-1)
    return stream.device_index, stream.stream_id
