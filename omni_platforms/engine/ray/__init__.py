"""Workers on the nodes of a Ray cluster: `RayExecutor` (docs/scaling.md). Needs the extra `ray`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.engine.ray.executor import RayExecutor

__all__ = ["RayExecutor"]

# The nodes' agents import this package, and need no executor.
__getattr__, __dir__ = lazy_names(__name__, {"RayExecutor": "omni_platforms.engine.ray.executor"})
