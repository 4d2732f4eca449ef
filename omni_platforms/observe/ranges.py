"""Profiler ranges around what executors do, for `torch.profiler` and the vendors' profilers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from omni_platforms import observers
from omni_platforms.observe.sink import Sink

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform


class Ranges(Sink):
    """Puts a range around each step of a thread: `omni.submit`, `omni.forward`, ...

    Names have no output in them, so that profilers add them up. The range is the platform's
    (`OmniPlatform.profiler_range`): of the first executor that has one, torch's own before that.
    """

    def __init__(self) -> None:
        self._platform: OmniPlatform | None = None

    def step(self, name: str, subject: str) -> AbstractContextManager[Any]:
        """Return the range of one step."""
        title = f"omni.{name.replace(' ', '.').lower()}"
        platform = self._platform = self._platform or _platform_of_an_executor()
        if platform is None:
            import torch

            return torch.profiler.record_function(title)
        return platform.profiler_range(title)


def _platform_of_an_executor() -> OmniPlatform | None:
    """Return the platform that is in use here. To observe is no reason to choose one."""
    for made in observers.live():
        if made.kind == "outputs":
            platform: OmniPlatform = made.thing.platform
            return platform
        if made.kind == "worker":
            platform = made.thing.arena.platform
            return platform
    return None
