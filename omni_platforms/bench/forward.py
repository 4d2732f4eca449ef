"""A forward whose end is known on the host's clock."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.machine import is_simulated
from omni_platforms.platform.interface import OmniPlatform

_SIZE, _SIMULATED_SIZE = 4096, 64


class Producer:
    """Makes outputs of one size on a device: at once, or behind matrix products.

    The same memory serves for each output, so one at a time may be under way.
    """

    def __init__(self, platform: OmniPlatform, device: torch.device, nbytes: int) -> None:
        self._platform, self._device = platform, device
        self._base = Pattern(nbytes).base_on(device)
        self._value = torch.empty_like(self._base)
        self._clock = _EventClock(device)
        self._factor: Tensor | None = None
        self._product: Tensor | None = None

    def complete(self, seed: int) -> tuple[Tensor, float]:
        """Return an output that the device has finished, and the time by `perf_counter`."""
        stamp(self._base, seed, out=self._value)
        self._platform.synchronize(self._device)
        return self._value, perf_counter()

    def behind_products(self, seed: int, products: int) -> Tensor:
        """Return an output that the device makes behind `products` products; do not wait for it."""
        factor, product = self._matrices()
        self._platform.synchronize(self._device)
        self._clock.start()
        for _ in range(products):
            torch.mm(factor, factor, out=product)
        stamp(self._base, seed, out=self._value)
        self._clock.stop()
        return self._value

    def ended(self) -> float:
        """Return when the device finished the last output behind products, by `perf_counter`."""
        return self._clock.stopped_at()

    def _matrices(self) -> tuple[Tensor, Tensor]:
        if self._factor is None or self._product is None:
            size = _SIMULATED_SIZE if is_simulated(self._platform) else _SIZE
            self._factor = torch.randn(size, size, dtype=torch.bfloat16, device=self._device)
            self._product = torch.empty_like(self._factor)
        return self._factor, self._product


class _EventClock:
    """Times the device with its own events, and puts the end on the host's clock.

    The device must be idle at the start: its first event is then complete a few
    microseconds after it was recorded.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start: torch.Event | None = None
        self._stop: torch.Event | None = None
        self._started_at = 0.0

    def start(self) -> None:
        self._start = torch.Event(self._device, enable_timing=True)
        self._stop = torch.Event(self._device, enable_timing=True)
        self._start.record()
        self._started_at = perf_counter()

    def stop(self) -> None:
        assert self._stop is not None
        self._stop.record()

    def stopped_at(self) -> float:
        assert self._start is not None
        assert self._stop is not None
        self._stop.synchronize()
        return self._started_at + self._start.elapsed_time(self._stop) / 1e3


def can_time_forwards(device: torch.device) -> bool:
    """Whether the device's events tell how long it worked (the CPU has none)."""
    if device.type == "cpu":
        return False
    clock = _EventClock(device)
    try:
        clock.start()
        clock.stop()
        return clock.stopped_at() > 0
    except (RuntimeError, NotImplementedError):
        return False
