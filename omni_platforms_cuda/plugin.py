"""The CUDA plugin: says whether an NVIDIA device is there, and makes the platform."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build
from omni_platforms_cuda.nvml import NvidiaDriver, NvmlError, NvmlMissingError, query_driver
from omni_platforms_cuda.visible import VARIABLE, visible_devices

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

NAME = "cuda"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Ask torch's version file and NVML; imports no torch and creates no CUDA context."""
    build = read_torch_build()
    if build is None:
        return _absent("torch is not installed", {})
    return judge(build, query_driver, os.environ.get(VARIABLE))


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the CUDA platform; imports torch, creates no CUDA context."""
    if name != NAME:
        return None
    from omni_platforms_cuda.platform import CudaPlatform

    return CudaPlatform()


def judge(build: TorchBuild, query: Callable[[], NvidiaDriver], visible: str | None) -> Probe:
    """Tell what the build of torch, the driver and `CUDA_VISIBLE_DEVICES` together mean.

    torch for ROCm and torch with MUSA look like CUDA from inside, so the build
    decides first. Devices that are there but that torch cannot use are BROKEN:
    falling back to the CPU without a word would cost whoever bought them hours.
    """
    versions = {"torch": build.version}
    if build.cuda is not None:
        versions["cuda"] = build.cuda
    if build.hip is not None:
        return _absent(f"torch {build.version} is built for ROCm: that is rocm's", versions)
    if build.xpu is not None:
        return _absent(f"torch {build.version} is built for Intel XPU: that is xpu's", versions)
    try:
        driver = query()
    except NvmlMissingError as error:
        return _absent(f"no NVIDIA driver: {error}{_musa_hint()}", versions)
    except NvmlError as error:
        reason = f"the NVIDIA driver does not work: {error}; repair it, until nvidia-smi works"
        return Probe(NAME, ProbeStatus.BROKEN, reason, versions=versions)
    return _judge_devices(build, driver, visible, {**versions, "driver": driver.version})


def _judge_devices(
    build: TorchBuild, driver: NvidiaDriver, visible: str | None, versions: Mapping[str, str]
) -> Probe:
    if not driver.uuids:
        return _absent(f"the NVIDIA driver sees no device{_musa_hint()}", versions)
    devices = visible_devices(visible, driver)
    total = len(driver.uuids)
    if not devices:
        return _absent(f"{VARIABLE}={visible!r} leaves none of {total} devices", versions)
    if build.cuda is None:
        reason = (
            f"{len(devices)} NVIDIA device(s) are there, but torch {build.version} is not built "
            "for CUDA; install a CUDA build of torch (https://pytorch.org/get-started), or set "
            "OMNI_PLATFORMS_DISABLE=cuda to do without them"
        )
        return Probe(NAME, ProbeStatus.BROKEN, reason, len(devices), versions)
    reason = f"{len(devices)} of {total} device(s), driver {driver.version}, CUDA {build.cuda}"
    return Probe(NAME, ProbeStatus.AVAILABLE, reason, len(devices), versions)


def _absent(reason: str, versions: Mapping[str, str]) -> Probe:
    return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)


def _musa_hint() -> str:
    found = importlib.util.find_spec("torch_musa") is not None
    return " (torch_musa is installed: that is musa's)" if found else ""
