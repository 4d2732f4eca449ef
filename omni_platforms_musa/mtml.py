"""Count Moore Threads devices with MTML, the vendor's management library.

MTML needs no device context, so a later fork stays usable; torch_musa's own count
does not (2.7.1, `csrc/core/Module.cpp`). Calls as mthreads-ml-py 2.4.3 makes them
(`pymtml.py`). Not run on hardware here.
"""

from __future__ import annotations

import ctypes
from typing import Any

_NAMES = ("libmtml.so.2", "libmtml.so")


class MtmlMissingError(Exception):
    """The library is not on this machine: there is no driver."""


class MtmlError(Exception):
    """The library is there and a call of it failed."""


def count_devices() -> int:
    """Return how many devices the driver sees. Raises `MtmlMissingError` or `MtmlError`."""
    return count_with(_load())


def count_with(library: Any) -> int:
    """As `count_devices`, with a library that is loaded already."""
    handle = ctypes.c_void_p()
    _check(library.mtmlLibraryInit(ctypes.byref(handle)), "mtmlLibraryInit")
    try:
        count = ctypes.c_uint(0)
        code = library.mtmlLibraryCountDevice(handle, ctypes.byref(count))
        _check(code, "mtmlLibraryCountDevice")
        return count.value
    finally:
        library.mtmlLibraryShutDown(handle)


def _load() -> Any:
    faults = []
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            faults.append(str(error))
    raise MtmlMissingError("; ".join(faults))


def _check(code: int, call: str) -> None:
    if code != 0:
        raise MtmlError(f"{call} failed (MTML error {code})")
