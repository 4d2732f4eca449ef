"""Forwards of a chosen length, whose outputs are known byte for byte.

A forward is a number of large kernels (the device is the limit), or of tiny ones (launching them
is), followed by one kernel that makes the output of `check.stamp`. That kernel comes last on
the stream: an output that was taken too early is another round's, and is seen.

Large kernels are matrix products. On the CPU they are sigmoids of so few numbers that torch uses
one core: products use all of them, and then whatever else runs decides how long they take.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.platform.interface import OmniPlatform

Kind = Literal["large", "tiny"]

_SMALLEST_SIDE = 64
_CPU_SIDE = 128
_LARGEST_SIDE = 4096
_PRODUCT_S = 1e-4  # long enough that launching the next product is hidden behind this one
_TINY_FLOATS = 1024
_CALIBRATIONS = 12
_TRIALS = 3  # the least counts: whatever else runs here only makes it longer
_NEAR_ENOUGH = 0.05


@dataclass(frozen=True)
class Work:
    """What one forward computes: `count` kernels of a kind, large ones of `[side, side]`."""

    kind: Kind
    count: int
    side: int = 0


@dataclass(frozen=True)
class Request:
    """One request to a forward: it pickles, and its number marks its output's bytes.

    `output_bytes` are a multiple of four. `way` tells a worker process how the output leaves it.
    """

    number: int
    work: Work
    output_bytes: int
    way: str = "device"


class Forward:
    """Runs requests on one device. Not for several threads at once."""

    def __init__(self, platform: OmniPlatform, device: torch.device) -> None:
        self._platform = platform
        self._device = device
        self._matrices: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._bases: dict[int, torch.Tensor] = {}
        self._tiny = torch.zeros(_TINY_FLOATS, device=device)

    def __call__(self, request: Request) -> torch.Tensor:
        """Enqueue the request's work; return its output on the device: int32 `[bytes // 4]`.

        Waits for nothing, except that the first output of a size moves its pattern to the device.
        """
        self.compute(request.work)
        base = self._bases.get(request.output_bytes)
        if base is None:
            base = Pattern(request.output_bytes).base_on(self._device)
            self._bases[request.output_bytes] = base
        return stamp(base, request.number)

    def forget(self) -> None:
        """Let go of the patterns, which are as large as the outputs."""
        self._bases.clear()

    def seconds_for(self, work: Work) -> float:
        """Return how long `work` takes, alone on the device. Blocks for that long."""
        self._platform.synchronize(self._device)
        start = time.perf_counter()
        self.compute(work)
        self._platform.synchronize(self._device)
        return time.perf_counter() - start

    def calibrated(self, kind: Kind, seconds: float) -> Work:
        """Return work that takes about `seconds` on this device. Blocks for some of them."""
        side = self._side() if kind == "large" else 0
        count, taken = 1, self._least(Work(kind, 1, side))
        for _ in range(_CALIBRATIONS):
            if abs(taken - seconds) < _NEAR_ENOUGH * seconds or (count == 1 and taken > seconds):
                break
            # At most tenfold: what a few kernels take says little about what many do.
            count = max(1, min(10 * count, round(count * seconds / taken)))
            taken = self._least(Work(kind, count, side))
        return Work(kind, count, side)

    def _least(self, work: Work) -> float:
        return min(self.seconds_for(work) for _ in range(_TRIALS))

    def _side(self) -> int:
        """Return how large matrices must be for their product to outlast its launch."""
        if self._device.type == "cpu":
            return _CPU_SIDE
        side = _SMALLEST_SIDE
        while side < _LARGEST_SIDE:
            self.seconds_for(Work("large", 2, side))
            if self.seconds_for(Work("large", 8, side)) / 8 >= _PRODUCT_S:
                break
            side *= 2
        return side

    def compute(self, work: Work) -> None:
        """Enqueue the kernels of `work`. Waits for nothing."""
        if work.kind == "tiny":
            for _ in range(work.count):
                self._tiny.add_(1)
            return
        if work.side not in self._matrices:
            self._matrices[work.side] = self._made(work.side)
        left, right, result = self._matrices[work.side]
        for _ in range(work.count):
            if self._device.type == "cpu":
                torch.sigmoid(left, out=result)
            else:
                torch.mm(left, right, out=result)

    def _made(self, side: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # Random numbers: products of zeros take less power, and can be faster than real ones.
        dtype = torch.float32 if self._device.type == "cpu" else torch.bfloat16
        drawn = torch.randn(3, side, side, generator=torch.Generator().manual_seed(0))
        left, right, result = drawn.to(self._device, dtype).unbind()
        return left, right, result
