"""The plugin of the device that `OMNI_SIMULATE` names, in front of a vendor's own.

Discovery registers it beside the plugin of that name. It answers that the device
is there, and starts the simulation before the vendor's plugin makes its platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms import settings
from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

SIM = "sim"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Answer AVAILABLE for the simulated device."""
    return Probe(
        settings.read("OMNI_SIMULATE") or SIM,
        ProbeStatus.AVAILABLE,
        "simulated, as OMNI_SIMULATE asks",
        device_count=settings.read("OMNI_SIMULATE_DEVICES"),
    )


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Start the simulation; imports torch. Makes the neutral platform, and no vendor's."""
    from omni_platforms.simulator.startup import start_from_environment

    simulation = start_from_environment()
    return simulation.platform if simulation is not None and name == SIM else None
