"""What a platform is, which ones are installed, and which one is used.

Names are resolved on first use; those that a plugin needs for its probe
(`Probe`, `ProbeStatus`, `hookimpl`) import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.platform.accelerator import AcceleratorPlatform
    from omni_platforms.platform.capability import Capability
    from omni_platforms.platform.cpu import CpuPlatform
    from omni_platforms.platform.discovery import PluginReport, discover
    from omni_platforms.platform.hookspecs import hookimpl
    from omni_platforms.platform.interface import DeviceLike, MemoryInfo, OmniPlatform
    from omni_platforms.platform.probe import Probe, ProbeStatus
    from omni_platforms.platform.registration import RegisteredHostMemory
    from omni_platforms.platform.selection import (
        choose,
        create_platform,
        current_platform,
        reset_platform,
        set_current_platform,
    )

__all__ = [
    "AcceleratorPlatform",
    "Capability",
    "CpuPlatform",
    "DeviceLike",
    "MemoryInfo",
    "OmniPlatform",
    "PluginReport",
    "Probe",
    "ProbeStatus",
    "RegisteredHostMemory",
    "choose",
    "create_platform",
    "current_platform",
    "discover",
    "hookimpl",
    "reset_platform",
    "set_current_platform",
]

_HOMES = {
    "AcceleratorPlatform": "omni_platforms.platform.accelerator",
    "Capability": "omni_platforms.platform.capability",
    "CpuPlatform": "omni_platforms.platform.cpu",
    "DeviceLike": "omni_platforms.platform.interface",
    "MemoryInfo": "omni_platforms.platform.interface",
    "OmniPlatform": "omni_platforms.platform.interface",
    "PluginReport": "omni_platforms.platform.discovery",
    "Probe": "omni_platforms.platform.probe",
    "ProbeStatus": "omni_platforms.platform.probe",
    "RegisteredHostMemory": "omni_platforms.platform.registration",
    "choose": "omni_platforms.platform.selection",
    "create_platform": "omni_platforms.platform.selection",
    "current_platform": "omni_platforms.platform.selection",
    "discover": "omni_platforms.platform.discovery",
    "hookimpl": "omni_platforms.platform.hookspecs",
    "reset_platform": "omni_platforms.platform.selection",
    "set_current_platform": "omni_platforms.platform.selection",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
