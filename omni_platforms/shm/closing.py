"""The end of arenas that nobody closed: at interpreter exit, and in the garbage collector."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omni_platforms.shm.arena import Arena

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_live: weakref.WeakSet[Arena] = weakref.WeakSet()
_kept: list[Any] = []
"""What a device may still be writing: the memory must outlive it."""


def close_at_exit(arena: Arena) -> None:
    """Close `arena` when the interpreter exits, unless it is gone by then."""
    _live.add(arena)


def keep_for_ever(memory: Any, unless: Callable[[float], None]) -> None:
    """Call `unless` with a timeout; when it fails, keep `memory` for the rest of the process."""
    try:
        unless(_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001  whatever it is, the device may be writing still
        _kept.append(memory)
        logger.error("shared memory is kept, as it could not be released: %s", str(error))


def _close_all() -> None:
    for arena in list(_live):
        keep_for_ever(arena, arena.close)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_live.clear)
