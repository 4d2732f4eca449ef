"""The MUSA plugin: says whether a Moore Threads device is there, and makes the platform."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from omni_platforms.platform.hookspecs import hookimpl
from omni_platforms.platform.probe import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build
from omni_platforms.platform.visible import visible_indices
from omni_platforms_musa.mtml import MtmlError, MtmlMissingError, count_devices

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

NAME = "musa"
VARIABLE = "MUSA_VISIBLE_DEVICES"


@hookimpl
def omni_platforms_probe() -> Probe:
    """Look for torch_musa's files and ask MTML; imports neither torch nor a vendor's package.

    torchada in particular is not imported: that would change torch for the
    whole process (0.1.103, `_patch.py`).
    """
    build = read_torch_build()
    if build is None:
        return Probe(NAME, ProbeStatus.ABSENT, "torch is not installed")
    return judge(build, torch_musa_version(), count_devices, os.environ.get(VARIABLE))


@hookimpl
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the MUSA platform; imports torch and torch_musa."""
    if name != NAME:
        return None
    from omni_platforms_musa.platform import MusaPlatform

    return MusaPlatform()


def torch_musa_version() -> str | None:
    """Return the version of torch_musa, or `None` where it is not installed."""
    if importlib.util.find_spec("torch_musa") is None:
        return None
    try:
        return importlib.metadata.version("torch-musa")
    except importlib.metadata.PackageNotFoundError:  # on the path without being installed
        return "unknown"


def judge(
    build: TorchBuild, torch_musa: str | None, count: Callable[[], int], visible: str | None
) -> Probe:
    """Tell what torch_musa, the driver and `MUSA_VISIBLE_DEVICES` together mean."""
    versions = {"torch": build.version}
    if torch_musa is not None:
        versions["torch_musa"] = torch_musa
    try:
        total = count()
    except MtmlMissingError:
        reason = "torch_musa is not installed" if torch_musa is None else "no driver (libmtml.so)"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    except MtmlError as error:
        reason = f"the driver does not work: {error}; repair it, until mthreads-gmi works"
        return Probe(NAME, ProbeStatus.BROKEN, reason, versions=versions)
    devices = len(visible_indices(visible, total))
    if not total:
        return Probe(NAME, ProbeStatus.ABSENT, "the driver sees no device", versions=versions)
    if not devices:
        reason = f"{VARIABLE}={visible!r} leaves none of {total} devices"
        return Probe(NAME, ProbeStatus.ABSENT, reason, versions=versions)
    if torch_musa is None:
        reason = (
            f"{devices} Moore Threads device(s) are there, but torch_musa is not installed: "
            "install Moore Threads' build of torch and torch_musa, or set "
            "OMNI_PLATFORMS_DISABLE=musa to do without them"
        )
        return Probe(NAME, ProbeStatus.BROKEN, reason, devices, versions)
    reason = f"{devices} of {total} device(s), torch_musa {torch_musa}"
    return Probe(NAME, ProbeStatus.AVAILABLE, reason, devices, versions)
