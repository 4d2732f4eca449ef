"""Pin memory that already exists, with the MUSA runtime.

`torch.musa.musart()` offers `musaHostRegister` and `musaHostUnregister` (torch_musa
2.7.1, `csrc/core/musart.cpp`); they answer an enumeration, 0 for success. Flag 1 is
what torch_musa itself uses (`distributed/_state_dict_utils.py`). Not run on hardware here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch_musa

from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.registration import RegisteredHostMemory, as_byte_tensor

_PORTABLE = 1


def register(buffer: Any) -> RegisteredHostMemory:
    """Pin the memory of `buffer`, a writable buffer or contiguous CPU tensor.

    Raises `HostRegistrationError` when the runtime refuses.
    """
    tensor = as_byte_tensor(buffer)
    musart = torch_musa.musart()
    address, size = tensor.data_ptr(), tensor.numel()
    code = int(musart.musaHostRegister(address, size, _PORTABLE))
    if code != 0:
        raise HostRegistrationError(
            f"MUSA did not register {size} bytes at {address:#x} (error {code}). Register each "
            "range once, keep it mapped, and raise the limit on locked memory (ulimit -l)."
        )
    return RegisteredHostMemory(tensor, _unregister(musart, address, size))


def _unregister(musart: Any, address: int, size: int) -> Callable[[], None]:
    owner = os.getpid()

    def unregister() -> None:
        if os.getpid() != owner:
            return  # a forked child: the registration is its parent's
        code = int(musart.musaHostUnregister(address))
        if code != 0:
            raise HostRegistrationError(
                f"MUSA did not unregister {size} bytes at {address:#x} (error {code})"
            )

    return unregister
