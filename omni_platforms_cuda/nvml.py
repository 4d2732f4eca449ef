"""What NVIDIA's driver says of itself, through NVML, by ctypes.

NVML (`libnvidia-ml.so.1`, part of the driver) creates no CUDA context and
leaves a later `fork()` usable. Signatures: `nvml.h` of CUDA 12, functions
`nvmlInit_v2`, `nvmlDeviceGetCount_v2`, `nvmlDeviceGetHandleByIndex_v2`,
`nvmlDeviceGetUUID`, `nvmlSystemGetDriverVersion` and the MIG queries. Each
returns a status, 0 for success, that `nvmlErrorString` explains.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE, the longest of the texts read here


class NvmlMissingError(Exception):
    """There is no NVML library, hence no NVIDIA driver."""


class NvmlError(Exception):
    """NVML is there and failed; the message holds its own words and code."""


@dataclass(frozen=True)
class NvidiaDriver:
    """The driver's version, and the UUIDs of its devices in NVML's (PCI bus) order."""

    version: str
    uuids: tuple[str, ...] = ()
    mig_uuids: tuple[str, ...] = ()
    """Slices of devices in multi-instance mode."""


def query_driver(load: Callable[[str], Any] = ctypes.CDLL) -> NvidiaDriver:
    """Ask NVML once, and shut it down again. Blocks for some milliseconds.

    `load` opens the library by name. Raises `NvmlMissingError` or `NvmlError`.
    """
    nvml = _Nvml(_open(load))
    nvml.call("nvmlInit_v2")
    try:
        devices = list(nvml.devices())
        return NvidiaDriver(
            version=nvml.text("nvmlSystemGetDriverVersion"),
            uuids=tuple(nvml.uuid(device) for device in devices),
            mig_uuids=tuple(nvml.uuid(part) for device in devices for part in nvml.parts(device)),
        )
    finally:
        nvml.call("nvmlShutdown")


def _open(load: Callable[[str], Any]) -> Any:
    try:
        return load(LIBRARY)
    except OSError as error:
        # glibc's words for a library that does not exist; all else is damage.
        if "No such file or directory" in str(error):
            raise NvmlMissingError(f"{LIBRARY} was not found") from error
        raise NvmlError(f"{LIBRARY} cannot be loaded: {error}") from error


class _Nvml:
    """The few NVML calls that are needed, with every status checked."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, function: str, *arguments: Any) -> None:
        try:
            entry = getattr(self._library, function)
        except AttributeError as error:
            raise NvmlError(f"{LIBRARY} has no {function}; update the NVIDIA driver") from error
        status = entry(*arguments)
        if status != 0:
            raise NvmlError(f"{function} failed: {self._explain(status)} (NVML status {status})")

    def text(self, function: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self.call(function, *arguments, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode("ascii", "replace")

    def count(self, function: str, *arguments: Any) -> int:
        number = ctypes.c_uint()
        self.call(function, *arguments, ctypes.byref(number))
        return number.value

    def uuid(self, device: ctypes.c_void_p) -> str:
        return self.text("nvmlDeviceGetUUID", device)

    def devices(self) -> Iterator[ctypes.c_void_p]:
        for index in range(self.count("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            yield handle

    def parts(self, device: ctypes.c_void_p) -> Iterator[ctypes.c_void_p]:
        """Yield the MIG devices of `device`; none where the device or driver knows no MIG."""
        try:
            slots = self.count("nvmlDeviceGetMaxMigDeviceCount", device)
        except NvmlError:
            return  # "not supported", which is every device before Ampere
        for index in range(slots):
            handle = ctypes.c_void_p()
            try:
                self.call(
                    "nvmlDeviceGetMigDeviceHandleByIndex",
                    device,
                    ctypes.c_uint(index),
                    ctypes.byref(handle),
                )
            except NvmlError:
                continue  # an empty slot answers "not found"
            yield handle

    def _explain(self, status: int) -> str:
        try:
            explain = self._library.nvmlErrorString
            explain.restype = ctypes.c_char_p
            return (explain(status) or b"unknown error").decode("ascii", "replace")
        except AttributeError:
            return "unknown error"
