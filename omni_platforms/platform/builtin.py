"""The plugin of the CPU platform, which is built in and always available."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

CPU = "cpu"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Answer AVAILABLE: every machine has a processor."""
    return Probe(CPU, ProbeStatus.AVAILABLE, "the host's processor", device_count=1)


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the CPU platform; imports torch."""
    if name != CPU:
        return None
    from omni_platforms.platform.cpu import CpuPlatform

    return CpuPlatform()
