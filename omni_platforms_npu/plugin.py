"""The NPU plugin: says whether an Ascend device is there, and makes the platform."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build
from omni_platforms_npu.machine import VARIABLE, AscendMachine, look, visible_count

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

NAME = "npu"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Look at files; imports neither torch nor torch_npu, and touches no device."""
    build = read_torch_build()
    if build is None:
        return Probe(NAME, ProbeStatus.ABSENT, "torch is not installed")
    return judge(build, look(), os.environ.get(VARIABLE))


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the NPU platform; imports torch and torch_npu."""
    if name != NAME:
        return None
    from omni_platforms_npu.platform import NpuPlatform

    return NpuPlatform()


def judge(build: TorchBuild, machine: AscendMachine, visible: str | None) -> Probe:
    """Tell what torch, torch_npu, CANN and the device files together mean."""
    versions = {"torch": build.version}
    if machine.torch_npu is not None:
        versions["torch_npu"] = machine.torch_npu
    fault = _fault(build, machine)
    if fault:
        return Probe(NAME, ProbeStatus.BROKEN, fault, versions=versions)
    if machine.torch_npu is None:
        return Probe(NAME, ProbeStatus.ABSENT, "torch_npu is not installed", versions=versions)
    if not machine.devices:
        reason = "no Ascend device (/dev/davinci0 with /dev/davinci_manager)"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    count = visible_count(visible, machine.devices)
    if not count:
        reason = (
            f"{VARIABLE}={visible!r} leaves none of {machine.devices} devices; it takes numbers "
            "in ascending order"
        )
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    reason = f"{count} of {machine.devices} device(s), torch_npu {machine.torch_npu}"
    return Probe(NAME, ProbeStatus.AVAILABLE, reason, count, versions)


def _fault(build: TorchBuild, machine: AscendMachine) -> str:
    """Return what does not work and the remedy, or nothing."""
    if machine.torch_npu is None:
        if not machine.devices:
            return ""
        return (
            f"{machine.devices} Ascend device(s) are there, but torch_npu is not installed: "
            "pip install omni-platforms[npu], or set OMNI_PLATFORMS_DISABLE=npu to do without them"
        )
    if not machine.cann_loads and (machine.devices or machine.autoload):
        return _cann_fault(machine)
    wanted = machine.requires_torch
    if wanted and _release(wanted) != _release(build.version):
        return (
            f"torch_npu {machine.torch_npu} is made for torch {wanted}, and torch {build.version} "
            f"is installed: pip install torch=={wanted}"
        )
    return ""


def _cann_fault(machine: AscendMachine) -> str:
    consequence = ", and so `import torch` fails" if machine.autoload else ""
    if machine.cann_folder:
        remedy = f"source {machine.cann_folder}/set_env.sh"
    else:
        remedy = "install CANN and source its set_env.sh"
    return (
        f"torch_npu {machine.torch_npu} is installed, but the loader does not find CANN's "
        f"libraries{consequence}; {remedy}, or uninstall torch_npu, or set "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without it"
    )


def _release(version: str) -> list[str]:
    return version.partition("+")[0].split(".")[:2]
