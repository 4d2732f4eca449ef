"""A device whose clock is another one than the host's, and whose events a test completes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.observe.sink import now
from omni_platforms.platform.cpu import CpuPlatform


class Event:
    """Complete at once on the idle stream; on others when `done` is set, at `offset` + its time."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.time = 0.0
        self.done = True

    def record(self, stream: Any) -> None:
        self.time = self.device.time()
        self.done = stream is self.device.idle
        if not self.done:
            self.device.pending.append(self)

    def finish(self, at: float) -> None:
        """Complete it at a moment of the host's clock."""
        self.time, self.done = at * self.device.rate + self.device.offset, True

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        assert self.done

    def elapsed_time(self, other: Event) -> float:
        return (other.time - self.time) * 1e3


class FakeDevice(CpuPlatform):
    """Its clock began at another time, and goes `rate` times as fast."""

    device_type = "fake"

    def __init__(self, offset: float = 1000.0, rate: float = 1.0) -> None:
        self.offset, self.rate = offset, rate
        self.idle: Any = object()
        self.stream: Any = object()
        self.pending: list[Event] = []

    def time(self) -> float:
        return now() * self.rate + self.offset

    def make_event(self, device: torch.device) -> Event:
        return Event(self)

    def create_side_stream(self, device: Any = None, *, priority: int = 0) -> Any:
        return self.idle

    def current_stream(self, device: Any = None) -> Any:
        return self.stream


Make = Callable[[torch.device], Event]
