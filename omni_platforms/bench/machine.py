"""The machine and the versions that stand with every result."""

from __future__ import annotations

import os
import platform as host
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from omni_platforms import __version__, settings
from omni_platforms.errors import SimulatorStateError
from omni_platforms.platform.interface import OmniPlatform

BUSY_SHARE = 0.25
"""A load above this share of the cores, before anything is measured, is worth a warning."""


def machine(platform: OmniPlatform, device: torch.device) -> dict[str, Any]:
    """Return what the result was measured on. Sizes are bytes; `load` is that of the last minute.

    `simulated` says whether the device is a simulated one, whose times mean nothing.
    """
    return {
        "platform": platform.name,
        "device": str(device),
        "device_name": platform.device_name(device.index or 0),
        "device_count": platform.device_count(),
        "simulated": is_simulated(platform),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "os": host.platform(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, torch and this package."""
    return {
        "python": host.python_version(),
        "torch": torch.__version__,
        "omni-platforms": __version__,
    }


def is_simulated(platform: OmniPlatform) -> bool:
    """Whether `platform` runs on a simulated device in this process."""
    names = {platform.name, platform.device_type}
    return settings.read("OMNI_SIMULATE") in names or _simulated_here() in names


def _simulated_here() -> str | None:
    """Return the device that `simulate()` was called for in this process, if it was."""
    simulation = sys.modules.get("omni_platforms.simulator.simulation")
    if simulation is None:
        return None
    try:
        name: str = simulation.installed().name
    except SimulatorStateError:
        return None
    return name


def usable_cores() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model(file: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, from Linux's list of processors or from Python."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or host.processor() or host.machine()


def load_warning(facts: dict[str, Any]) -> str | None:
    """Return what to say about a machine that was busy before anything was measured."""
    if facts["load"] <= BUSY_SHARE * facts["cores"]:
        return None
    return (
        f"the machine was busy at the start (load {facts['load']:.1f} on {facts['cores']} cores): "
        "end what else runs on it, and measure again"
    )


def simulated_warning(facts: dict[str, Any]) -> str | None:
    """Return what to say about a device that is a simulated one."""
    if not facts["simulated"]:
        return None
    return "the device is a simulated one: its times say nothing about any hardware"
