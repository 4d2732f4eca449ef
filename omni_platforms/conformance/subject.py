"""The platform under test: its plugin, how that stands, and the object that it makes."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from omni_platforms import settings
from omni_platforms.conformance.record import Mode
from omni_platforms.errors import PlatformError, UnknownPlatformError
from omni_platforms.platform.builtin import CPU, SIMULATED
from omni_platforms.platform.discovery import PluginReport, discover, known_names
from omni_platforms.platform.plugin_entries import PluginEntry, find_entries
from omni_platforms.platform.probe import ProbeStatus
from omni_platforms.platform.selection import create_platform

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform
    from omni_platforms.simulator import Simulation

KNOWN_FAILURES = "conformance.toml"
"""The file beside a vendor's plugin module that lists its known failures."""


@dataclass(frozen=True)
class Subject:
    """One platform as the suite sees it. `report` is what discovery found out."""

    name: str
    entry: PluginEntry
    report: PluginReport

    @property
    def available(self) -> bool:
        """Whether there is a device to run on."""
        return self.report.status is ProbeStatus.AVAILABLE

    @property
    def mode(self) -> Mode:
        """Whether the device is a simulated one: of its name, or of its platform's device type."""
        simulated = settings.read("OMNI_SIMULATE")
        names = {self.name} if self.made is None else {self.name, self.made.device_type}
        return Mode.SIMULATED if simulated in names else Mode.HARDWARE

    @cached_property
    def platform(self) -> OmniPlatform:
        """The platform object, made on first use; may import torch and the vendor's package.

        Raises `BrokenPluginError` when the plugin does not make one.
        """
        return create_platform(self.report)

    @property
    def made(self) -> OmniPlatform | None:
        """The platform object, or `None` where there is no device or the plugin makes none."""
        if not self.available:
            return None
        try:
            return self.platform
        except PlatformError:
            return None

    @property
    def simulation(self) -> Simulation | None:
        """The simulated device of this process, or `None` on hardware."""
        if self.mode is not Mode.SIMULATED:
            return None
        from omni_platforms.simulator import installed

        return installed()

    @property
    def known_failures(self) -> Path | None:
        """The list of known failures in the plugin's package, or `None` where there is none."""
        return known_failures_of(self.entry)


def known_failures_of(entry: PluginEntry) -> Path | None:
    """Return `conformance.toml` in a plugin's package, or `None`. Imports no plugin."""
    package = entry.value.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    found = [Path(folder) / KNOWN_FAILURES for folder in folders]
    return next((file for file in found if file.is_file()), None)


def find_subject(name: str) -> Subject:
    """Return the platform called `name`, which need not be available.

    Blocks for as long as its plugin's probe takes. Raises `UnknownPlatformError`.
    """
    reports = discover(only=name)
    entry = plugin_entry(name)
    if not reports or entry is None:
        known = sorted({*known_names(), SIMULATED.name})
        raise UnknownPlatformError(
            f"no plugin offers the platform {name!r}. Known names: {', '.join(known)}. Install "
            f"the plugin; for a simulated device set OMNI_SIMULATE={name}."
        )
    return Subject(name, entry, reports[-1])


def plugin_entry(name: str) -> PluginEntry | None:
    """Return which module is the plugin called `name`, or `None` for an unknown name."""
    if name == CPU:
        return PluginEntry(CPU, SIMULATED.distribution, SIMULATED.version, _BUILTIN)
    entries = find_entries().get(name)
    if entries:
        return entries[0]
    return SIMULATED if name == SIMULATED.name else None


_BUILTIN = "omni_platforms.platform.builtin"
