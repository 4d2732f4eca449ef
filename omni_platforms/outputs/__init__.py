"""The async output executor of one process."""

from __future__ import annotations

from omni_platforms.outputs.executor import AsyncOutputExecutor
from omni_platforms.outputs.future import OutputFuture
from omni_platforms.outputs.pending import OutputTimeline, PendingDescription, Phase
from omni_platforms.outputs.stats import OutputStats

__all__ = [
    "AsyncOutputExecutor",
    "OutputFuture",
    "OutputStats",
    "OutputTimeline",
    "PendingDescription",
    "Phase",
]
