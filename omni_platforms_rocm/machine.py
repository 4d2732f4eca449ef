"""AMD devices of this machine, and which of them the environment leaves.

Counted from the kernel's own list (`/sys/class/kfd`, a node with a
`gfx_target_version` is a GPU, as LLVM's `amdgpu-arch` reads it): no library is
loaded. `import amdsmi` in particular raises `KeyError` where its library is
missing (7.0.2, executed). Not run on hardware here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from omni_platforms.platform.visible import visible_indices

VARIABLE = "HIP_VISIBLE_DEVICES"

_NODES = "sys/class/kfd/kfd/topology/nodes"


def count_devices(root: Path = Path("/")) -> int:
    """Count the GPUs that the kernel offers to ROCm and this process may open."""
    if not (root / "dev/kfd").exists():
        return 0
    return sum(map(_is_gpu, sorted((root / _NODES).glob("*/properties"))))


def visible_count(environment: Mapping[str, str], devices: int) -> int:
    """Count what the three variables leave of `devices`.

    As torch 2.13 reads them (`torch/cuda/__init__.py`, `_parse_visible_devices`):
    `ROCR_VISIBLE_DEVICES` first, and `HIP_VISIBLE_DEVICES`, or else
    `CUDA_VISIBLE_DEVICES`, among what that one leaves.
    """
    rocr = environment.get("ROCR_VISIBLE_DEVICES")
    left = len(visible_indices(rocr, devices))
    value = environment.get(VARIABLE, environment.get("CUDA_VISIBLE_DEVICES"))
    return len(visible_indices(value, left))


def said(environment: Mapping[str, str]) -> str:
    """Return those of the variables that are set, as a shell would write them."""
    names = ("ROCR_VISIBLE_DEVICES", VARIABLE, "CUDA_VISIBLE_DEVICES")
    return " ".join(f"{name}={environment[name]!r}" for name in names if name in environment)


def _is_gpu(properties: Path) -> bool:
    try:
        text = properties.read_text()
    except OSError:  # a device of another container: its node cannot be read
        return False
    version = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
    return version is not None and int(version[1]) != 0
