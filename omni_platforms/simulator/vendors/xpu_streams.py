"""The bases of `torch.xpu.Stream` and `torch.xpu.Event`, which torch has in C++."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.simulator.device_types import XPU
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.vendors.native import HollowEvent


class XpuEventBase(HollowEvent):
    """The base of `torch.xpu.Event`. It takes native and generic streams (torch 2.11 and later)."""

    _device = "xpu"

    def __new__(cls, enable_timing: bool = False) -> Any:
        """Make an event that is not recorded yet."""
        return cls.make(enable_timing)

    @property
    def sycl_event(self) -> int:
        """The vendor's handle, which here is the event's number; 0 before it is recorded."""
        return self._own.event_id


def stream_base(driver: Driver) -> type[torch.Stream]:
    """Return the base of `torch.xpu.Stream`."""

    class XpuStreamBase(torch.Stream):
        """Makes a stream on the current device, or wraps one that is there."""

        def __new__(cls, priority: int = 0, **key: int) -> Any:
            """Make a new stream, or wrap the one of `stream_id` and `device_index`."""
            if "stream_id" not in key:
                low, high = cls.priority_range()
                index, number = driver.new_stream(-1, min(low, max(high, priority)))
                key = {"stream_id": number, "device_index": index, "device_type": XPU.number}
            return super().__new__(cls, **key)

        @property
        def priority(self) -> int:
            """The priority; lower numbers are served first."""
            return driver.stream_priority(self.device_index, self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            """Return the lowest and the highest priority (`c10/xpu/XPUStream.h`)."""
            return 1, -1

        @property
        def sycl_queue(self) -> int:
            """The vendor's handle of the stream, which here is its number."""
            return self.stream_id

    return XpuStreamBase
