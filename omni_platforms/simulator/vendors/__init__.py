"""The vendors whose modules are simulated: one module each, with the vendor's own quirks.

Each one says which release of the vendor's package it follows, and where each
quirk was read. What vendors share is in `vendor.py`, `devices.py`, `native.py`
and `publish.py`; the `.txt` files have the public names of the real packages.
"""

from __future__ import annotations

from omni_platforms.simulator.vendors.vendor import Vendor


def vendor_named(name: str) -> Vendor:
    """Return how the device `name` enters torch: as its vendor's does, or neutrally."""
    if name == "npu":
        from omni_platforms.simulator.vendors.npu import Npu

        return Npu()
    if name == "musa":
        from omni_platforms.simulator.vendors.musa import Musa

        return Musa()
    if name == "xpu":
        from omni_platforms.simulator.vendors.xpu import Xpu

        return Xpu()
    return Vendor()
