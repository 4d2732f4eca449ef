"""Outputs across processes: shared memory that the device writes and the consumer reads."""

from __future__ import annotations

from omni_platforms.shm.arena import Arena
from omni_platforms.shm.packet import Packet
from omni_platforms.shm.packing import Packing
from omni_platforms.shm.stats import ArenaStats
from omni_platforms.shm.view import ArenaView

__all__ = ["Arena", "ArenaStats", "ArenaView", "Packet", "Packing"]
