"""What an arena reports about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArenaStats:
    """One moment of an arena; sizes in bytes."""

    cap: int
    """What all segments may take together."""
    total_bytes: int
    """What the segments take now: allocated memory, whether in use or not."""
    used_bytes: int
    """In blocks that are being written, lent to the consumer, or not yet written to the end."""
    peak_used_bytes: int
    largest_free: int
    """The largest block that could be had without another segment."""
    free_ranges: int
    """In how many pieces the free memory lies."""
    segments: int
    grown: int
    """Segments that were made under an output, which took its time."""
    given_back: int
    """Segments that were given back to the system."""
    in_flight: int
    """Blocks of outputs that have no packet yet."""
    lent: int
    """Blocks whose lease the consumer has, or will have when its packet arrives."""
    retired: int
    """Blocks of dropped and failed outputs that the device may still be writing."""
    registered: bool
    """The device writes every segment itself, without staging."""
    reason: str
    """Why it does not."""
    numa_node: int | None
    """The NUMA node that the pages were asked for on; `None` where that is not known."""
    consumer_gone: bool
