"""Worker processes, one a device: messages, the worker's loop, and who talks to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.engine.aio import Output
    from omni_platforms.engine.executor import MultiprocExecutor
    from omni_platforms.engine.future import EngineFuture
    from omni_platforms.engine.ledger_records import Origin
    from omni_platforms.engine.messages import AsyncOutput
    from omni_platforms.engine.pending_state import PendingState
    from omni_platforms.engine.previews import Preview
    from omni_platforms.engine.stats import EngineStats, WorkerStats

__all__ = [
    "AsyncOutput",
    "EngineFuture",
    "EngineStats",
    "MultiprocExecutor",
    "Origin",
    "Output",
    "PendingState",
    "Preview",
    "WorkerStats",
]

# A worker process imports this package, and needs none of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AsyncOutput": "omni_platforms.engine.messages",
        "EngineFuture": "omni_platforms.engine.future",
        "EngineStats": "omni_platforms.engine.stats",
        "MultiprocExecutor": "omni_platforms.engine.executor",
        "Origin": "omni_platforms.engine.ledger_records",
        "Output": "omni_platforms.engine.aio",
        "PendingState": "omni_platforms.engine.pending_state",
        "Preview": "omni_platforms.engine.previews",
        "WorkerStats": "omni_platforms.engine.stats",
    },
)
