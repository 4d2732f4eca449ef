"""Intel devices of this machine, counted without creating a device context.

torch 2.13 counts through Level Zero Sysman where the package pyzes is installed
(`torch/xpu/__init__.py`, `_enum_zes_device_infos`), and otherwise through a call
that makes a later fork unusable. Where pyzes is missing, the kernel's list of
graphics devices is read instead; it does not know about tiles.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from ctypes import byref, c_uint32, c_void_p, cast, pointer
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "ZE_AFFINITY_MASK"

_INTEL = "0x8086"
_DRIVERS = ("xe", "i915")
_INTEGRATED = 1  # ZES_DEVICE_PROPERTY_FLAG_INTEGRATED


class SysmanError(Exception):
    """Level Zero Sysman is there and a call of it failed."""


@dataclass(frozen=True)
class IntelDevices:
    """What was counted: discrete and integrated devices, in the order of their numbers."""

    integrated: tuple[bool, ...] = ()
    """For each device whether it is integrated."""
    source: str = ""

    def visible(self, mask: str | None) -> int:
        """Count what torch would: the devices that `ZE_AFFINITY_MASK` leaves.

        Integrated devices count only where no discrete one is left. Numbers may
        come in any order; "0.1" (a tile) is taken for its device.
        """
        left = [self.integrated[index] for index in _visible(mask, len(self.integrated))]
        return left.count(False) or left.count(True)


def find_devices(environment: Mapping[str, str] = os.environ) -> IntelDevices:
    """Count the devices. Raises `SysmanError` where Sysman is there and fails."""
    if importlib.util.find_spec("pyzes") is None:
        return devices_of_the_kernel()
    try:
        import pyzes
    except (ImportError, OSError):  # no Level Zero loader on this system
        return devices_of_the_kernel()
    composite = environment.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    return devices_of_sysman(pyzes, tiles=not composite)


def devices_of_sysman(pyzes: Any, tiles: bool) -> IntelDevices:
    """Ask Level Zero Sysman; with `tiles` each tile of a discrete device counts."""
    _check(pyzes, pyzes.zesInit(0), "zesInit")
    drivers = _list(pyzes, pyzes.zesDriverGet, pyzes.zes_driver_handle_t)
    if not drivers:
        return IntelDevices(source="Level Zero")
    devices = _list(
        pyzes, lambda *rest: pyzes.zesDeviceGet(drivers[0], *rest), pyzes.zes_device_handle_t
    )
    found: list[bool] = []
    for device in devices:
        integrated, parts = _properties(pyzes, device)
        found += [integrated] * (parts if tiles and parts and not integrated else 1)
    return IntelDevices(tuple(found), "Level Zero")


def devices_of_the_kernel(root: Path = Path("/")) -> IntelDevices:
    """Count the render nodes that Intel's graphics drivers made; integrated is unknown."""
    found = 0
    for node in sorted((root / "sys/class/drm").glob("renderD*")):
        device = node / "device"
        try:
            vendor = (device / "vendor").read_text().strip()
            driver = (device / "driver").resolve().name
        except OSError:  # not a PCI device
            continue
        found += vendor == _INTEL and driver in _DRIVERS
    return IntelDevices((False,) * found, "the kernel")


def _visible(mask: str | None, count: int) -> set[int]:
    if mask is None:
        return set(range(count))
    entries = (entry.strip().partition(".")[0] for entry in mask.split(","))
    return {int(entry) for entry in entries if entry.isdigit() and int(entry) < count}


def legacy_extension() -> str | None:
    """Return the version of intel-extension-for-pytorch, if it is installed."""
    try:
        return importlib.metadata.version("intel-extension-for-pytorch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _list(pyzes: Any, get: Any, kind: Any) -> Any:
    """Call one of Sysman's list functions twice: for the count, and for the handles."""
    count = c_uint32(0)
    _check(pyzes, get(byref(count), None), "counting")
    handles = (kind * count.value)()
    if count.value:
        _check(pyzes, get(byref(count), handles), "listing")
    return handles


def _properties(pyzes: Any, device: Any) -> tuple[bool, int]:
    """Return whether a device is integrated, and how many tiles it has."""
    properties = pyzes.zes_device_properties_t()
    properties.stype = pyzes.ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES
    more = pyzes.zes_device_ext_properties_t()
    more.stype = pyzes.ZES_STRUCTURE_TYPE_DEVICE_EXT_PROPERTIES
    properties.pNext = cast(pointer(more), c_void_p)
    _check(pyzes, pyzes.zesDeviceGetProperties(device, byref(properties)), "properties")
    return bool(more.flags & _INTEGRATED), int(properties.numSubdevices)


def _check(pyzes: Any, code: int, what: str) -> None:
    if code != pyzes.ZE_RESULT_SUCCESS:
        raise SysmanError(f"Level Zero Sysman failed ({what}: {code:#x})")
