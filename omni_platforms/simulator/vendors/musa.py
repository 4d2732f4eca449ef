"""`torch_musa`, which is also `torch.musa`, as torch_musa 2.7.1 has it.

Paths in this file are those of its source. Read, not run: none of it was tried
on a Moore Threads device.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.faulty_driver import FaultyDriver
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.pinned_memory import PinnedMemory
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.vendors.devices import VendorDevices
from omni_platforms.simulator.vendors.names import names_of
from omni_platforms.simulator.vendors.native import NativeStream
from omni_platforms.simulator.vendors.publish import publish
from omni_platforms.simulator.vendors.vendor import Vendor

VERSION = "2.7.1"


class MusaDriver(FaultyDriver):
    """The generic interface of torch_musa, with what it lacks."""

    def device_synchronize(self, device: int) -> None:
        """Raises: the guard does not have it (`csrc/core/GuardImpl.h`).

        So `torch.accelerator.synchronize` raises; `torch.musa.synchronize` works.
        """
        raise RuntimeError(
            "Backend doesn't support synchronizing all streams on device. "
            "Use torch.musa.synchronize()."
        )


class MusaStream(NativeStream):
    """A stream of torch_musa (`core/stream.py`)."""

    @property
    def musa_stream(self) -> int:
        """The vendor's handle of the stream, which here is its number."""
        return self.stream_id


class musaError(enum.Enum):
    """What the runtime's calls return: an enumeration that is no integer (`csrc/core/musart.cpp`).

    `result == 0` is false for success; `int(result) == 0` is true.
    """

    success = 0
    invalidValue = 1
    hostMemoryAlreadyRegistered = 712
    hostMemoryNotRegistered = 713

    def __int__(self) -> int:
        return int(self.value)


class MusaRuntime:
    """What `torch.musa.musart()` returns."""

    def __init__(self, pinned: PinnedMemory) -> None:
        self._pinned = pinned

    def musaHostRegister(self, ptr: int, size: int, flags: int) -> musaError:
        """Pin existing memory."""
        if size <= 0:
            return musaError.invalidValue
        try:
            self._pinned.register(ptr, size)
        except HostRegistrationError:
            return musaError.hostMemoryAlreadyRegistered
        return musaError.success

    def musaHostUnregister(self, ptr: int) -> musaError:
        """Undo `musaHostRegister`."""
        try:
            self._pinned.unregister(ptr)
        except HostRegistrationError:
            return musaError.hostMemoryNotRegistered
        return musaError.success


class MusaDevices(VendorDevices):
    """The module `torch.musa` (`core/device.py`, `core/stream.py`, `core/memory.py`).

    It has no statistics of pinned memory and no `set_sync_debug_mode`.
    """

    native_stream = MusaStream

    def __init__(self, runtime: Runtime, driver: Driver, generators: DefaultGenerators) -> None:
        super().__init__(runtime, driver, generators)
        self.MUSAGraph = self.Graph

    def synchronize(self, device: Any = None) -> None:
        """Block the host until all work of the device is done."""
        self._driver.wait_for_device(self._checked(device))

    def get_device_name(self, device: Any = None) -> str:
        """Return the model's name."""
        return str(self.get_device_properties(device).name)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Return the compute capability (`core/device.py`)."""
        found = self.get_device_properties(device)
        return found.major, found.minor

    def get_device_properties(self, device: Any = None) -> types.SimpleNamespace:
        """Return name, memory in bytes and cores; no unique id (`csrc/core/Module.cpp`)."""
        self._checked(device)
        return types.SimpleNamespace(
            name="Simulated MTT S5000",
            major=3,
            minor=1,
            total_memory=self._runtime.memory.limit,
            multi_processor_count=56,
        )

    def musart(self) -> MusaRuntime:
        """Return the calls of the runtime."""
        return MusaRuntime(self._runtime.pinned)


class Musa(Vendor):
    """Registers as torch_musa does: the package itself is the device's module."""

    driver = MusaDriver
    # A report of one engine's platform for this vendor, not a fact of the package.
    unsupported = frozenset({torch.float64, torch.complex128})

    def module(
        self, runtime: Runtime, driver: Driver, generators: DefaultGenerators
    ) -> types.ModuleType:
        """Make `torch_musa` and return it."""
        devices = MusaDevices(runtime, driver, generators)
        module: Any = publish(
            "torch_musa", devices, names_of("torch_musa"), f"torch_musa {VERSION}"
        )
        module.__version__ = VERSION
        return module  # type: ignore[no-any-return]
