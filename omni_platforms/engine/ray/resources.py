"""What Ray calls a platform's devices, and which variable shows a process only its own.

Ray hands out devices by a resource's name, and writes the ids that it chose into the vendor's
variable before a process of an actor starts (Ray 2.60, `ray/_private/accelerators/*.py`). That
is the only translation of a physical id: a worker sees its own device alone, as number 0.
Vendors that Ray does not know need a custom resource
(`ray start --resources='{"MUSA": 8}'`), of which Ray only counts how many are left: a worker then
sees all devices, and gets the number of one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

_RAYS_OWN = {
    "cuda": ("GPU", "CUDA_VISIBLE_DEVICES"),
    "rocm": ("GPU", "HIP_VISIBLE_DEVICES"),
    "xpu": ("GPU", "ZE_AFFINITY_MASK"),
    "npu": ("NPU", "ASCEND_RT_VISIBLE_DEVICES"),
}


class DeviceResource(NamedTuple):
    """How Ray knows the devices of a platform."""

    name: str
    """Of the resource; one worker takes one."""
    variable: str | None
    """What Ray writes the ids to; `None` where it only counts."""


def resource_of(platform: str) -> DeviceResource | None:
    """Return the resource of a platform, or `None` for the CPU's."""
    if platform == "cpu":
        return None
    return DeviceResource(*_RAYS_OWN.get(platform, (platform.upper(), None)))


def bundle_of(platform: str, asked: Mapping[str, float] | None) -> dict[str, float]:
    """Return what one worker takes of its node: a processor and a device, unless asked otherwise.

    Raises `ValueError` for amounts that are not positive.
    """
    resource = resource_of(platform)
    default = {"CPU": 1.0, **({} if resource is None else {resource.name: 1.0})}
    bundle = default if asked is None else dict(asked)
    if not bundle or min(bundle.values()) <= 0:
        raise ValueError(f"resources are positive amounts, such as {default}, not {bundle}")
    return bundle


def device_index(
    platform: str, ids: Mapping[str, list[str]], environ: Mapping[str, str] = os.environ
) -> int | None:
    """Return the number of the device that a worker of this process is to use.

    `ids` is what Ray assigned, by resource. 0 where the variable shows only that one; the
    physical number where Ray was told to leave the variable alone; `None` where Ray does not know.
    Raises `ValueError` for an id that is no number although the variable does not show it.
    """
    resource = resource_of(platform)
    assigned = [] if resource is None else ids.get(resource.name, [])
    if resource is None or not assigned:
        return None
    if resource.variable is not None and environ.get(resource.variable) == ",".join(assigned):
        return 0
    if not assigned[0].isdecimal():
        raise ValueError(
            f"Ray assigned {resource.name} {assigned[0]!r}, and {resource.variable} does not say so"
        )
    return int(assigned[0])
