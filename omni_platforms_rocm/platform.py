"""`RocmPlatform`: AMD's devices, which torch offers under CUDA's names.

A ROCm build of torch has the module `torch.cuda`, the device type "cuda" and the
runtime calls `cudaHostRegister` (`torch/csrc/cuda/shared/cudart.cpp` keeps those
names), so the CUDA platform serves with few differences. That code was run on
NVIDIA hardware; none of it on AMD's.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from omni_platforms_cuda.platform import CudaPlatform
from omni_platforms_rocm.machine import VARIABLE


class RocmPlatform(CudaPlatform):
    """AMD devices, through a ROCm build of torch."""

    name: ClassVar[str] = "rocm"
    vendor: ClassVar[str] = "amd"
    device_control_env_var: ClassVar[str | None] = VARIABLE
    conformance_tier: ClassVar[str | None] = None  # nobody has run the suite on an AMD device

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id as torch has it; the prefix of NVIDIA's is not AMD's."""
        return str(torch.cuda.get_device_properties(index).uuid)
