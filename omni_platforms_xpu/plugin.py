"""The XPU plugin: says whether an Intel device is there, and makes the platform."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build
from omni_platforms_xpu.machine import (
    VARIABLE,
    IntelDevices,
    SysmanError,
    find_devices,
    legacy_extension,
)

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

NAME = "xpu"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Ask torch's version file and Level Zero Sysman; creates no device context."""
    build = read_torch_build()
    if build is None:
        return Probe(NAME, ProbeStatus.ABSENT, "torch is not installed")
    return judge(build, find_devices, legacy_extension(), os.environ.get(VARIABLE))


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the XPU platform; imports torch, creates no device context."""
    if name != NAME:
        return None
    from omni_platforms_xpu.platform import XpuPlatform

    return XpuPlatform()


def judge(
    build: TorchBuild,
    find: Callable[[], IntelDevices],
    extension: str | None,
    mask: str | None,
) -> Probe:
    """Tell what the build of torch, the devices and Intel's legacy extension together mean.

    A device is not BROKEN for a torch of another vendor: nearly every desktop
    processor has an integrated one.
    """
    versions = {"torch": build.version}
    if extension is not None:
        versions["intel-extension-for-pytorch"] = extension
    if build.xpu is None:
        fault = _extension_fault(build, extension)
        if fault:
            return Probe(NAME, ProbeStatus.BROKEN, fault, versions=versions)
        reason = f"torch {build.version} is not built for XPU"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    versions["xpu"] = build.xpu
    try:
        devices = find()
    except SysmanError as error:
        reason = f"{error}; repair the driver, until sycl-ls lists the device"
        return Probe(NAME, ProbeStatus.BROKEN, reason, versions=versions)
    return _judge_devices(devices, mask, versions)


def _judge_devices(devices: IntelDevices, mask: str | None, versions: Mapping[str, str]) -> Probe:
    total = len(devices.integrated)
    count = devices.visible(mask)
    if not total:
        return Probe(NAME, ProbeStatus.ABSENT, "no Intel device", versions=versions)
    if not count:
        reason = f"{VARIABLE}={mask!r} leaves none of {total} devices"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    reason = f"{count} of {total} device(s), as {devices.source} counts them"
    return Probe(NAME, ProbeStatus.AVAILABLE, reason, count, versions)


def _extension_fault(build: TorchBuild, extension: str | None) -> str:
    """Return what is wrong with Intel's extension, whose development ended with 2.8.

    It asks for no release of torch, so pip pairs it with any; with another one its
    import ends in an `AttributeError` (2.8.0 from the index, executed).
    """
    if extension is None:
        return ""
    release = ".".join(extension.split(".")[:2])
    if build.version.startswith(f"{release}."):
        return ""
    return (
        f"intel-extension-for-pytorch {extension} is installed beside torch {build.version}, with "
        f"which its import fails: uninstall it (torch's own XPU build needs no extension), or "
        f"install torch=={release}.*"
    )
