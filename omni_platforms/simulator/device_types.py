"""The two of torch's device types under which a simulated accelerator can register."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceType:
    """A device type of torch: its dispatch key, its number, and what the C++ part needs."""

    key: str
    """The dispatch key, as `torch.library` names it."""
    number: int
    """torch's number of the type (`c10/core/DeviceType.h`)."""
    defines: tuple[str, ...] = ()
    """Options for the compiler."""


PRIVATE_USE_1 = DeviceType("PrivateUse1", 20)
"""torch's one place for a device from outside, under any name."""
XPU = DeviceType("XPU", 12, ("-DOMNI_SIMULATE_XPU",))
"""Intel's own device type, which a build of torch without XPU leaves empty."""
