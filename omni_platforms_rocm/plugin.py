"""The ROCm plugin: says whether an AMD device is there, and makes the platform."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build
from omni_platforms_rocm.machine import count_devices, said, visible_count

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

NAME = "rocm"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Ask torch's version file and the kernel; imports no torch and no library of AMD's."""
    build = read_torch_build()
    if build is None:
        return Probe(NAME, ProbeStatus.ABSENT, "torch is not installed")
    return judge(build, count_devices(), os.environ)


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the ROCm platform; imports torch, creates no device context."""
    if name != NAME:
        return None
    from omni_platforms_rocm.platform import RocmPlatform

    return RocmPlatform()


def judge(build: TorchBuild, devices: int, environment: Mapping[str, str]) -> Probe:
    """Tell what the build of torch, the devices and the variables together mean.

    A device is not BROKEN for a torch of another vendor: many processors have
    an integrated one.
    """
    versions = {"torch": build.version}
    if build.hip is None:
        reason = f"torch {build.version} is not built for ROCm"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    versions["hip"] = build.hip
    if not devices:
        reason = "no AMD device that this process may use (/dev/kfd and its list of nodes)"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    count = visible_count(environment, devices)
    if not count:
        reason = f"{said(environment)} leaves none of {devices} devices"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    reason = f"{count} of {devices} device(s), HIP {build.hip}"
    return Probe(NAME, ProbeStatus.AVAILABLE, reason, count, versions)
