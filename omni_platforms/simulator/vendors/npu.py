"""`torch_npu` and `torch.npu`, as torch_npu 2.14.0 has them.

Paths in this file are those of its wheel, or of its C++ source of August 2026
(`csrc/`). Read, not run: none of it was tried on an Ascend device.
"""

from __future__ import annotations

import enum
import os
import re
import sys
import types
import warnings
from multiprocessing.util import register_after_fork
from typing import Any

import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.faulty_driver import FaultyDriver
from omni_platforms.simulator.graphs.pool import PoolId
from omni_platforms.simulator.module_graphs import GraphContext, SimulatedGraph
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.pinned_memory import PinnedMemory
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import StreamKey
from omni_platforms.simulator.vendors.devices import VendorDevices
from omni_platforms.simulator.vendors.names import names_of
from omni_platforms.simulator.vendors.native import NativeEvent, NativeStream
from omni_platforms.simulator.vendors.publish import package, publish
from omni_platforms.simulator.vendors.vendor import Vendor

VERSION = "2.14.0"
_RELEASE = f"torch_npu {VERSION}"
_PAGE = 4096
_MAPPED = 0x2  # ACL_HOST_REG_MAPPED
_PINNED = 0x10000000  # ACL_HOST_REG_PINNED
_INVALID = 107000  # ACL_ERROR_RT_PARAM_INVALID


class NpuDriver(FaultyDriver):
    """The generic interface of torch_npu, with what it does otherwise than asked."""

    def new_stream(self, device: int, priority: int) -> StreamKey:
        """Return a new stream: every priority but 0 means high (`csrc/.../NPUGuardImpl.cpp`)."""
        return super().new_stream(device, -1 if priority else 0)


class NpuStream(NativeStream):
    """A stream of torch_npu (`npu/streams.py`)."""

    @property
    def npu_stream(self) -> int:
        """The vendor's handle of the stream, which here is its number."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """Raises: the priority cannot be asked for (`csrc/npu/Stream.cpp`)."""
        raise RuntimeError("NPU does not support Stream.priority currently.")

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Raises: the range cannot be asked for (`csrc/npu/Stream.cpp`)."""
        raise RuntimeError("NPU does not support Stream.priority_range() currently.")


class NpuEvent(NativeEvent):
    """An event of torch_npu (`npu/streams.py`)."""

    def elapsed_time(self, end_event: Any) -> float:
        """Wait for both events, then return the milliseconds between them.

        torch's generic event raises where one is not complete; this one blocks
        the host (`csrc/core/npu/NPUEvent.cpp`).
        """
        self.synchronize()
        end_event.synchronize()
        return super().elapsed_time(end_event)


class NpuRuntime:
    """What `torch.npu.npurt()` returns: calls of the runtime that answer 0 or an error's number."""

    def __init__(self, pinned: PinnedMemory) -> None:
        self._pinned = pinned

    def npuHostRegister(self, ptr: int, size: int, flags: int) -> int:
        """Pin existing memory. `MAPPED` (0x2) wants whole pages of 4 KiB; `PINNED` does not."""
        if flags not in (_MAPPED, _PINNED, _MAPPED | _PINNED) or size <= 0:
            return _INVALID
        if flags & _MAPPED and (ptr % _PAGE or size % _PAGE):
            return _INVALID
        return _status(lambda: self._pinned.register(ptr, size))

    def npuHostUnregister(self, ptr: int) -> int:
        """Undo `npuHostRegister`."""
        return _status(lambda: self._pinned.unregister(ptr))


def _status(call: Any) -> int:
    try:
        call()
    except HostRegistrationError:
        return _INVALID
    return 0


class NpuDevices(VendorDevices):
    """The module `torch.npu` (`npu/__init__.py`, `npu/utils.py`, `npu/memory.py`)."""

    native_stream = NpuStream
    native_event = NpuEvent

    def __init__(self, runtime: Runtime, driver: Driver, generators: DefaultGenerators) -> None:
        super().__init__(runtime, driver, generators)
        self._bad_fork = False
        self.NPUGraph = self.Graph
        register_after_fork(self, NpuDevices._after_fork)

    # A fork is seen through multiprocessing alone: after a bare `os.fork()` the
    # module does not know (`npu/__init__.py`, `_register_after_fork`). The simulated
    # device itself refuses either way.
    def _after_fork(self) -> None:
        self._bad_fork = self._runtime.gate.forked

    def _is_in_bad_fork(self) -> bool:
        return self._bad_fork

    def get_device_name(self, device_name: Any = None) -> str:
        """Return the name of the chip; checks `device_name` and then ignores it."""
        self._checked(device_name)
        return "Simulated Ascend 910"

    def get_device_properties(self, device_name: Any = None) -> types.SimpleNamespace:
        """Return name, memory in bytes, cores and unique id (`csrc/npu/Module.cpp`)."""
        index = self._checked(device_name)
        return types.SimpleNamespace(
            name=self.get_device_name(),
            total_memory=self._runtime.memory.limit,
            cube_core_num=24,
            vector_core_num=48,
            major=0,
            minor=0,
            uuid=f"SIM-00000000-0000-0000-0000-{index:012d}",
        )

    def get_device_capability(self, device: Any = None) -> Any:
        """Return what `TORCH_NPU_DEVICE_CAPABILITY` says ("8.0"), else warn and return `None`."""
        text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
        found = re.fullmatch(r"(\d+)\.(\d+)", text)
        warnings.warn(
            "torch.npu.get_device_capability: the number is whatever TORCH_NPU_DEVICE_CAPABILITY "
            "says, in the form 8.0, and not the device's",
            stacklevel=2,
        )
        return (int(found[1]), int(found[2])) if found else None

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the free and the total bytes."""
        return super().mem_get_info(self._checked(device))

    def graph(  # type: ignore[override]
        self,
        npu_graph: SimulatedGraph,
        pool: PoolId | None = None,
        stream: torch.Stream | None = None,
        auto_dispatch_capture: bool = False,
        capture_error_mode: str = "global",
    ) -> GraphContext:
        """Return a context that captures `npu_graph`; `auto_dispatch_capture` changes nothing."""
        return super().graph(npu_graph, pool, stream, capture_error_mode)

    # Pinned memory ------------------------------------------------------------

    def npurt(self) -> NpuRuntime:
        """Return the calls of the runtime (torch_npu 2.13 and later)."""
        return NpuRuntime(self._runtime.pinned)

    def host_empty_cache(self) -> None:
        """Give cached pinned memory back."""
        self._driver.host_empty_cache()

    # Synchronization ----------------------------------------------------------

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Let waits that the caller did not ask for warn (1, "warn") or raise (2, "error")."""
        words: dict[Any, int] = {"default": 0, "warn": 1, "error": 2, 0: 0, 1: 1, 2: 2}
        if debug_mode not in words:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`"
            )
        self._runtime.scheduler.sync_debug.mode = words[debug_mode]

    def get_sync_debug_mode(self) -> int:
        """Return the mode as a number."""
        return self._runtime.scheduler.sync_debug.mode


class ProfilerActivity(enum.Enum):
    """`torch_npu.profiler.ProfilerActivity`, which is not torch's own of that name."""

    CPU = 0
    NPU = 1


class Npu(Vendor):
    """Registers as torch_npu does: a package with the device's module in it."""

    driver = NpuDriver

    def module(
        self, runtime: Runtime, driver: Driver, generators: DefaultGenerators
    ) -> types.ModuleType:
        """Make `torch_npu`, `torch_npu.npu` and `torch_npu.profiler`; return the second."""
        root: Any = package("torch_npu", f"The simulated stand-in for {_RELEASE}.")
        root.__version__ = VERSION
        root.npu = publish(
            "torch_npu.npu",
            NpuDevices(runtime, driver, generators),
            names_of("torch_npu"),
            _RELEASE,
        )
        root.profiler = package("torch_npu.profiler", "The activities of the vendor's profiler.")
        root.profiler.ProfilerActivity = ProfilerActivity
        return sys.modules["torch_npu.npu"]
