"""What is built in: the plugin of the CPU platform, and where the simulated one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms import __version__
from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.plugin_entries import PluginEntry
from omni_platforms.platform.probe import Probe, ProbeStatus

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

CPU = "cpu"
SIMULATED = PluginEntry("sim", "omni-platforms", __version__, "omni_platforms.simulator.plugin")
"""The plugin for `OMNI_SIMULATE`, named as any plugin is: the simulator stands above this part."""


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
