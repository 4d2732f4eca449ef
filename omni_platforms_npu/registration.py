"""Pin memory that already exists, with the Ascend runtime.

`torch.npu.npurt()` offers `npuHostRegister` and `npuHostUnregister` from torch_npu
2.13 on (`npu/__init__.py`, `csrc/npu/npurt.cpp`): they answer the runtime's error
number. `MAPPED` wants whole pages of 4 KiB; one project reports 23 GB/s with it and
8 to 9 GB/s at 64 MiB with `PINNED` alone. Not run on hardware here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch_npu

from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.registration import RegisteredHostMemory, as_byte_tensor

_PAGE = 4096
_MAPPED = 0x2  # ACL_HOST_REG_MAPPED


def runtime() -> Any:
    """Return torch_npu's runtime module, or `None` where torch_npu is older than 2.13."""
    npurt: Callable[[], Any] | None = getattr(torch_npu.npu, "npurt", None)
    return None if npurt is None else npurt()


def register(buffer: Any, npurt: Any) -> RegisteredHostMemory:
    """Pin the pages of `buffer`, a writable buffer or contiguous CPU tensor.

    Registers whole pages, so two buffers that share a page cannot both be
    registered. Raises `HostRegistrationError` when the runtime refuses.
    """
    tensor = as_byte_tensor(buffer)
    start = tensor.data_ptr() // _PAGE * _PAGE
    end = -(-(tensor.data_ptr() + tensor.numel()) // _PAGE) * _PAGE
    code = int(npurt.npuHostRegister(start, end - start, _MAPPED))
    if code != 0:
        raise HostRegistrationError(
            f"the Ascend runtime did not register {end - start} bytes at {start:#x} (error "
            f"{code}). Register each 4 KiB page once, raise the limit on locked memory (ulimit "
            "-l), and see the driver's requirements for memory registration."
        )
    return RegisteredHostMemory(tensor, _unregister(npurt, start, end - start))


def _unregister(npurt: Any, start: int, size: int) -> Callable[[], None]:
    owner = os.getpid()

    def unregister() -> None:
        if os.getpid() != owner:
            return  # a forked child: the registration is its parent's
        code = int(npurt.npuHostUnregister(start))
        if code != 0:
            raise HostRegistrationError(
                f"the Ascend runtime did not unregister {size} bytes at {start:#x} (error {code})"
            )

    return unregister
