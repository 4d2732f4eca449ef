"""The acme plugin: says whether a device is there, and makes the platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms import settings
from omni_platforms.platform import Probe, ProbeStatus, hookimpl

if TYPE_CHECKING:
    from omni_platforms.platform import OmniPlatform

NAME = "acme"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Ask whether the simulator gives this process the device `sim`, as others ask a driver.

    Imports neither torch nor the simulator, and opens no device.
    """
    if settings.read("OMNI_SIMULATE") != "sim":
        return Probe(NAME, ProbeStatus.ABSENT, "no Acme device (OMNI_SIMULATE=sim makes some)")
    count = settings.read("OMNI_SIMULATE_DEVICES")
    return Probe(NAME, ProbeStatus.AVAILABLE, f"{count} device(s)", count)


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the platform; imports torch, and with it what registers the device."""
    if name != NAME:
        return None
    from omni_platforms_acme.platform import AcmePlatform

    return AcmePlatform()
