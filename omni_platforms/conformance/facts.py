"""What is known of some platforms from outside their plugins: an oracle for their identity.

Read off the vendors' packages: torch 2.13 for cuda, rocm and xpu, torch_npu 2.14.0
(`_init/registry/distributed.py`, `npu/__init__.py`), torch_musa 2.7.1
(`csrc/distributed/Register.cpp`, `core/device.py`). A platform that is not in the
table is checked for form only.
"""

from __future__ import annotations

from typing import NamedTuple


class Identity(NamedTuple):
    """The class attributes that a platform of this name has."""

    device_type: str
    dist_backend: str
    device_control_env_var: str | None
    packages: tuple[str, ...] = ()
    """The vendor's Python packages, which a probe must not import."""


IDENTITIES = {
    "cpu": Identity("cpu", "gloo", None),
    "cuda": Identity("cuda", "nccl", "CUDA_VISIBLE_DEVICES"),
    "rocm": Identity("cuda", "nccl", "HIP_VISIBLE_DEVICES", ("amdsmi",)),
    "npu": Identity("npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES", ("torch_npu", "acl")),
    "xpu": Identity("xpu", "xccl", "ZE_AFFINITY_MASK", ("intel_extension_for_pytorch",)),
    "musa": Identity("musa", "mccl", "MUSA_VISIBLE_DEVICES", ("torch_musa", "torchada")),
}

NAMES = tuple(IDENTITIES)
"""The names that `OmniPlatform` has a predicate for: `is_cuda()` and so on."""
