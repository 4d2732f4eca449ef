"""The memory statistics of `torch.<device>`, under the names of torch's own device modules."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from omni_platforms.simulator.driver import Driver

_POOLS = ("all", "small_pool", "large_pool")
_FIELDS = ("current", "peak", "allocated", "freed")
_UNSPLIT = ("inactive_split", "inactive_split_bytes")
"""What torch counts of split blocks, of which this allocator has none."""
_OVERSIZE = ("oversize_allocations", "oversize_segments")


class MemoryFunctions:
    """A part of the device module. Where `device` is left out it means the current one.

    Each function may be called on any thread and none of them waits for the device.
    """

    _driver: Driver

    def _index(self, device: Any = None) -> int:
        raise NotImplementedError

    def memory_stats(self, device: Any = None) -> OrderedDict[str, int]:
        """Return each statistic under its dotted name, sorted: counts, and sums in bytes.

        The same names and values as `torch.accelerator.memory_stats`. Active
        memory is what tensors own and what was freed while a stream of
        `record_stream` may still use it.
        """
        flat: dict[str, int] = {}
        _flatten("", self.memory_stats_as_nested_dict(device), flat)
        return OrderedDict(sorted(flat.items()))

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        """Return the statistics as nested dictionaries: name, pool and field."""
        found = self._driver.device_stats(self._index(device))
        nothing = (0, 0, 0, 0)
        nested: dict[str, Any] = {
            name: value if isinstance(value, int) else _pools(value)
            for name, value in found.items()
        }
        nested.update((name, _pools((nothing,) * 3)) for name in _UNSPLIT)
        nested.update((name, dict(zip(_FIELDS, nothing, strict=True))) for name in _OVERSIZE)
        return {**nested, "max_split_size": 0}

    def reset_accumulated_memory_stats(self, device: Any = None) -> None:
        """Let the sums (allocated, freed) and the counts of events be zero."""
        self._driver.reset_accumulated_stats(self._index(device))

    def host_memory_stats(self) -> OrderedDict[str, int]:
        """Return the statistics of pinned memory (counts, and sums in bytes)."""
        return OrderedDict(sorted(self._driver.host_stats().items()))


def _pools(rows: Any) -> dict[str, dict[str, int]]:
    return {
        pool: dict(zip(_FIELDS, row, strict=True)) for pool, row in zip(_POOLS, rows, strict=True)
    }


def _flatten(prefix: str, value: Any, into: dict[str, int]) -> None:
    if not isinstance(value, dict):
        into[prefix] = value
        return
    for name, item in value.items():
        _flatten(f"{prefix}.{name}" if prefix else name, item, into)
