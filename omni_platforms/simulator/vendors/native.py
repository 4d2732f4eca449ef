"""The vendors' own stream and event classes, which differ from torch's generic ones.

A vendor's event is a `torch.Event` by its type alone: the vendor keeps its state
beside the generic part, which stays empty. A generic stream that waits for it
reads the empty part and waits for nothing (torch 2.13, `Stream.cpp` and
`InlineEvent.h`; the vendors' `Event.cpp`). The classes here are made the same way.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from omni_platforms.errors import SimulatorStateError


class NativeStream(torch.Stream):
    """A vendor's stream. Its generic part is filled in, so torch's interface works on it."""

    _event_class: ClassVar[type[torch.Event]]

    def wait_event(self, event: Any) -> None:
        """Make later work of this stream wait for `event`, native or generic."""
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new native one, on this stream and return it."""
        if event is None:
            event = self._event_class()
        event.record(self)
        return event

    def wait_stream(self, stream: Any) -> None:
        """Make later work of this stream wait for what `stream` holds now."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeStream) and bool(super().__eq__(other))

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))


class HollowEvent(torch.Event):
    """An event whose generic part is never recorded; the state is in `_own`."""

    _device: ClassVar[str]
    _own: torch.Event

    @classmethod
    def make(cls, enable_timing: bool) -> Any:
        """Return an event that is not recorded yet."""
        made = super().__new__(cls, device=cls._device)
        made._own = torch.Event(cls._device, enable_timing=enable_timing)
        return made

    def record(self, stream: Any = None) -> None:
        """Record the event on a stream."""
        self._own.record(stream)

    def wait(self, stream: Any = None) -> None:
        """Make a stream wait for the event."""
        self._own.wait(stream)

    def query(self) -> bool:
        """Whether the work before the event is done. Does not block."""
        return self._own.query()

    def synchronize(self) -> None:
        """Block the host until the work before the event is done."""
        self._own.synchronize()

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds between this event and `end_event`."""
        return self._own.elapsed_time(end_event._own)


class NativeEvent(HollowEvent):
    """The event of npu and musa, which takes the vendor's own streams only."""

    _module: ClassVar[Any]

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Any:
        """Make an event that is not recorded yet; `blocking` changes nothing."""
        return cls.make(enable_timing)

    def record(self, stream: Any = None) -> None:
        """Record the event on a native stream, by default the current one."""
        super().record(self._native(stream))

    def wait(self, stream: Any = None) -> None:
        """Make a native stream, by default the current one, wait for the event."""
        native = self._native(stream)
        if self._own.event_id:
            super().wait(native)
        else:  # a fault of the device may be that this hangs; otherwise it means nothing
            driver = self._module.driver
            driver.event_block(0, native.device_index, native.stream_id)

    def _native(self, stream: Any) -> torch.Stream:
        """Return `stream`, refused where the vendor would read past the end of the object."""
        if stream is None:
            return self._module.current_stream()  # type: ignore[no-any-return]
        if not isinstance(stream, NativeStream):
            raise SimulatorStateError(
                f"torch.{self._device}.Event was given a {type(stream).__name__} that is not the "
                "vendor's own. The real package reads past the end of that object (its Event.cpp "
                "casts without a check). Use torch.Event with torch.Stream."
            )
        return stream
