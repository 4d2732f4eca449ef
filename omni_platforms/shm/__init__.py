"""Outputs across processes: shared memory that the device writes and the consumer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.shm.arena import Arena
    from omni_platforms.shm.packet import Packet
    from omni_platforms.shm.packing import Packing
    from omni_platforms.shm.stats import ArenaStats
    from omni_platforms.shm.view import ArenaView

__all__ = ["Arena", "ArenaStats", "ArenaView", "Packet", "Packing"]

# Who only passes blocks on imports `reader`, and no torch.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Arena": "omni_platforms.shm.arena",
        "ArenaStats": "omni_platforms.shm.stats",
        "ArenaView": "omni_platforms.shm.view",
        "Packet": "omni_platforms.shm.packet",
        "Packing": "omni_platforms.shm.packing",
    },
)
