"""Pin memory that already exists, with the CUDA runtime.

`torch.cuda.cudart()` offers `cudaHostRegister` and `cudaHostUnregister` (torch
2.7 to 2.13, `torch/csrc/cuda/shared/cudart.cpp`) but not `cudaGetLastError`,
without which a refused registration would surface later, at an unrelated call.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.registration import RegisteredHostMemory, as_byte_tensor

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for every CUDA context of the process


def register(buffer: Any, cudart: Any = None) -> RegisteredHostMemory:
    """Pin the memory of `buffer`, a writable buffer or contiguous CPU tensor.

    Blocks for about 0.4 ms a megabyte on pages that were never touched, and
    creates the CUDA context where there is none. Raises `HostRegistrationError`
    when CUDA refuses, and `TypeError` or `ValueError` for memory that cannot be
    pinned at all.
    """
    tensor = as_byte_tensor(buffer)
    runtime: Any = cudart or torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, size = tensor.data_ptr(), tensor.numel()
    code = int(runtime.cudaHostRegister(address, size, _PORTABLE))
    if code != 0:
        clear_last_error()
        raise HostRegistrationError(_refusal(runtime, code, address, size))
    return RegisteredHostMemory(tensor, _unregister(runtime, address, size))


def _unregister(runtime: Any, address: int, size: int) -> Callable[[], None]:
    owner = os.getpid()

    def unregister() -> None:
        if os.getpid() != owner:
            return  # a forked child: the registration is its parent's, and CUDA is unusable here
        code = int(runtime.cudaHostUnregister(address))
        if code != 0:
            clear_last_error()
            raise HostRegistrationError(
                f"CUDA did not unregister {size} bytes at {address:#x}: {_explain(runtime, code)}. "
                "An earlier CUDA error or a changed mapping is the usual cause."
            )

    return unregister


def _refusal(runtime: Any, code: int, address: int, size: int) -> str:
    return (
        f"CUDA did not register {size} bytes at {address:#x}: {_explain(runtime, code)}. "
        "Register each range once, keep it mapped, and raise the limit on locked memory "
        f"(ulimit -l, now {_locked_memory_limit()}) and the container's memory limit."
    )


def _explain(runtime: Any, code: int) -> str:
    words = runtime.cudaGetErrorString(runtime.cudaError(code))
    return f"{words} (CUDA error {code})"


def _locked_memory_limit() -> str:
    if sys.platform == "win32":
        return "not a limit of this system"
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"


def clear_last_error() -> None:
    """Make the CUDA runtime forget the calling thread's last error."""
    function = _last_error_function()
    if function is not None:
        function()
        return
    try:
        # A kernel launch by torch reads the last error, reports it and so clears it.
        torch.zeros(1, device=torch.device("cuda", torch.cuda.current_device()))
    except RuntimeError as error:
        if "CUDA" not in str(error):
            raise


@functools.cache
def _last_error_function() -> Callable[[], int] | None:
    """Find `cudaGetLastError` in the CUDA runtime that torch has loaded already.

    Only a library in memory will do: a second copy has a last error of its own.
    """
    major = (torch.version.cuda or "").partition(".")[0]
    try:
        library = ctypes.CDLL(f"libcudart.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        function: Callable[[], int] = library.cudaGetLastError
    except (OSError, AttributeError):  # linked statically, or another system
        return None
    return function
