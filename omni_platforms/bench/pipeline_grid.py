"""The cells of `pipeline`'s grid, and what is aimed at in each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omni_platforms.bench.forwards import Kind
from omni_platforms.bench.rows import Case, Target

ALONE = "forwards alone"
COPY = "bare pinned copy"
BLOCKING = "blocking .cpu()"
EXECUTOR = "AsyncOutputExecutor"
WORKER_ALONE = "forwards alone, in the worker"
WORKER_BLOCKING = "blocking .cpu() in the worker"
COMMON = "common async path"
TORCH_QUEUE = "torch.multiprocessing queue"
ENGINE = "MultiprocExecutor"
SLOW = (BLOCKING, WORKER_BLOCKING, COMMON, TORCH_QUEUE)
_ONE_AFTER_THE_OTHER = (BLOCKING, WORKER_BLOCKING)
PARTS = {
    "one process": (ALONE, COPY, BLOCKING, EXECUTOR),
    "across processes": (WORKER_ALONE, WORKER_BLOCKING, COMMON, TORCH_QUEUE, ENGINE),
}

QUEUE = 8
"""Requests that are in flight where there is a queue."""

_QUICK_S = 0.06
_MOST_REQUESTS = 48
_SINGLE_REQUESTS = 4

_IMAGE_512 = 3 * 512 * 512 * 4
_IMAGE_1024 = 3 * 1024 * 1024 * 4
_IMAGE_2048 = 3 * 2048 * 2048 * 4
_CLIP_49 = 49 * _IMAGE_512
_SIZES = (_IMAGE_512, _IMAGE_1024, _IMAGE_2048, _CLIP_49)
_TINY_SIZES = (_IMAGE_512, _IMAGE_1024, _CLIP_49)
_FORWARDS_S = (0.002, 0.010, 0.040)
_AIMED_FROM_S = 0.010


@dataclass(frozen=True)
class Cell:
    """Forwards of about `forward_s` seconds, of one kind of kernel, and their output's bytes.

    A measurement takes about `measured_s` seconds, but for ways that take much longer.
    """

    forward_s: float
    output_bytes: int
    kernels: Kind = "large"
    measured_s: float = 0.4

    def case(self, part: str, in_flight: int) -> Case:
        """Return what stands with the rows."""
        return {
            "part": part,
            "in_flight": in_flight,
            "forward_s": self.forward_s,
            "output_bytes": self.output_bytes,
            "kernels": self.kernels,
        }

    def requests(self, in_flight: int, way: str) -> int:
        """Return how many requests one measurement of a way runs: the same for all, but one thing.

        Enough that starting up and running dry, which the clock includes, count little. The ways
        that copy on the host take up to a hundred times as long for large outputs, and run fewer:
        one queue, or half of one where nothing goes on side by side.
        """
        long = way in SLOW and self.output_bytes > _IMAGE_1024
        if in_flight == 1:
            return _SINGLE_REQUESTS // 2 if long else _SINGLE_REQUESTS
        if long:
            return QUEUE // 2 if way in _ONE_AFTER_THE_OTHER else QUEUE
        return max(QUEUE, min(_MOST_REQUESTS, round(self.measured_s / self.forward_s)))

    @property
    def aimed(self) -> bool:
        """Whether targets apply: the device is the limit, for ten milliseconds and longer."""
        return self.kernels == "large" and self.forward_s >= _AIMED_FROM_S


def cells(
    accelerator: bool,
    quick: bool,
    forward_s: float | None = None,
    output_bytes: int | None = None,
) -> Iterator[Cell]:
    """Yield the grid, or the part of it with a forward or an output that is asked about.

    On the CPU the outputs are smaller: it copies no faster than it computes.
    """
    if quick and forward_s is None and output_bytes is None:
        size = _IMAGE_1024 if accelerator else _IMAGE_512
        yield Cell(0.010 if accelerator else 0.004, size, "large", _QUICK_S)
        yield Cell(0.002, size, "tiny", _QUICK_S)
        return
    usual = _SIZES if accelerator else _SIZES[:2]
    measured_s = _QUICK_S if quick else Cell.measured_s
    for nbytes in usual if output_bytes is None else (output_bytes,):
        for forward in _FORWARDS_S if forward_s is None else (forward_s,):
            yield Cell(forward, nbytes, "large", measured_s)
        if output_bytes is not None or nbytes in _TINY_SIZES:
            yield Cell(0.010 if forward_s is None else forward_s, nbytes, "tiny", measured_s)


def queue_target(forward_s: float, copy_s: float) -> Target:
    """Return what a request may take of the compute floor, given what its copy alone takes."""
    return Target(1.05 if copy_s > forward_s / 4 else 1.02, "ratio at most")


SINGLE_TARGET = Target(1.01, "ratio at most")
"""What a lone request may take of the time with a blocking copy."""

DEVICES_CELL = Cell(0.010, _IMAGE_1024)
"""What two devices are compared with one on."""

DEVICES_TARGET = Target(1.95, "ratio at least", base="two devices")
"""How much faster two devices must be than one."""
