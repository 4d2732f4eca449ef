"""Counts and sums of the device allocator, as torch's memory statistics report them."""

from __future__ import annotations

SMALL_BLOCK = 1 << 20
"""Requests up to this many bytes belong to torch's "small pool", the others to the large."""

_NAMES = (
    "allocation",
    "segment",
    "active",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "requested_bytes",
)


class Statistic:
    """One number that goes up and down, with its peak and its sums."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def change(self, amount: int) -> None:
        """Add `amount`, which may be negative."""
        self.current += amount
        self.peak = max(self.peak, self.current)
        if amount > 0:
            self.allocated += amount
        else:
            self.freed -= amount

    def row(self) -> tuple[int, int, int, int]:
        """Return current, peak, allocated and freed."""
        return self.current, self.peak, self.allocated, self.freed


class MemoryStatistics:
    """The statistics of one device."""

    def __init__(self) -> None:
        # For each name: all blocks, the small pool's and the large pool's.
        self._rows = {name: (Statistic(), Statistic(), Statistic()) for name in _NAMES}
        self.retries = 0
        self.out_of_memory = 0
        self.waits_for_all_streams = 0
        self.segments_made = 0
        self.segments_given_back = 0

    def change(self, name: str, amount: int, block_size: int) -> None:
        """Add `amount` to the statistic `name`, for a block of `block_size` bytes."""
        pool = 1 if block_size <= SMALL_BLOCK else 2
        self._rows[name][0].change(amount)
        self._rows[name][pool].change(amount)

    def current(self, name: str) -> int:
        """Return the current value of the statistic `name`, over both pools."""
        return self._rows[name][0].current

    def peak(self, name: str) -> int:
        """Return the highest value of the statistic `name` since the last reset."""
        return self._rows[name][0].peak

    def report(self) -> dict[str, object]:
        """Return everything, in the form that the C++ part expects.

        What comes of splitting blocks, which this allocator does not do, is
        left out: torch reports it as zero.
        """
        rows: dict[str, object] = {
            name: tuple(statistic.row() for statistic in pools)
            for name, pools in self._rows.items()
        }
        return {
            **rows,
            "num_alloc_retries": self.retries,
            "num_ooms": self.out_of_memory,
            "num_sync_all_streams": self.waits_for_all_streams,
            "num_device_alloc": self.segments_made,
            "num_device_free": self.segments_given_back,
        }

    def reset_peaks(self) -> None:
        """Let each peak be the current value."""
        for statistic in self._all():
            statistic.peak = statistic.current

    def reset_sums(self) -> None:
        """Let the sums and the counts of events be zero; current values and peaks stay.

        The same ones as torch's CUDA allocator resets (`CUDACachingAllocator.cpp`).
        """
        self.retries = self.out_of_memory = self.waits_for_all_streams = 0
        self.segments_made = self.segments_given_back = 0
        for statistic in self._all():
            statistic.allocated = statistic.freed = 0

    def _all(self) -> list[Statistic]:
        return [statistic for pools in self._rows.values() for statistic in pools]
