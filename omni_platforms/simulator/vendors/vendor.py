"""How a simulated device enters torch: the neutral way, and the base of the vendors' ways."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import torch
from torch.utils import backend_registration

from omni_platforms.simulator.device_module import DeviceModule
from omni_platforms.simulator.device_types import PRIVATE_USE_1, DeviceType
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.faulty_driver import FaultyDriver
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.runtime import Runtime


class Vendor:
    """The neutral way: a name that torch does not know, with a module of its own."""

    device_type: DeviceType = PRIVATE_USE_1
    driver: Callable[[Runtime], FaultyDriver] = FaultyDriver
    """Makes what answers the C++ part."""
    unsupported: frozenset[torch.dtype] = frozenset()
    """Types of numbers that the device has no tensors of."""

    def refusal(self, name: str) -> str | None:
        """Return why this process cannot simulate `name`, or `None`. Changes nothing."""
        taken = torch._C._get_privateuse1_backend_name()
        if taken not in ("privateuseone", name):
            return (
                f"torch's one place for an outside device is taken by {taken!r} in this process. "
                "Simulate in a process that does not import that vendor's package."
            )
        if not name.isidentifier() or hasattr(torch, name):
            return (
                f"{name!r} cannot be simulated: it must be a Python name that torch does not "
                "use itself."
            )
        return None

    def claim(self, name: str) -> None:
        """Take the name in torch, before the C++ part is installed."""
        backend_registration.rename_privateuse1_backend(name)

    def install(
        self, runtime: Runtime, driver: Driver, generators: DefaultGenerators
    ) -> types.ModuleType:
        """Make the module `torch.<name>`, register it with torch and return it."""
        module = self.module(runtime, driver, generators)
        torch._register_device_module(runtime.name, module)  # type: ignore[no-untyped-call]
        sys.modules[f"torch.{runtime.name}"] = module
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
        return module

    def module(
        self, runtime: Runtime, driver: Driver, generators: DefaultGenerators
    ) -> types.ModuleType:
        """Return the module `torch.<name>`."""
        return DeviceModule(runtime, driver, generators)
