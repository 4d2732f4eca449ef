"""Seeing what executors do: traces, metrics, spans, profiler ranges, a live view, logs.

Nothing of it runs unless somebody asks for it (docs/observability.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.observe.logs import JsonFormatter
    from omni_platforms.observe.server import expose, hide
    from omni_platforms.observe.state import snapshot

__all__ = ["JsonFormatter", "expose", "hide", "snapshot"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "JsonFormatter": "omni_platforms.observe.logs",
        "expose": "omni_platforms.observe.server",
        "hide": "omni_platforms.observe.server",
        "snapshot": "omni_platforms.observe.state",
    },
)
