"""Switches the faults of one simulated accelerator on and off."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from omni_platforms.simulator.faults import MODULE_PREFIX, Faults, split_missing
from omni_platforms.simulator.faulty_driver import FaultyDriver
from omni_platforms.simulator.runtime import Runtime


class FaultSwitch:
    """The two drivers and the module of an accelerator, which take on what faults ask for.

    torch's generic interface and the vendor's module have a driver each, because
    a method may be missing in one and be there in the other.
    """

    def __init__(self, runtime: Runtime, driver: Callable[[Runtime], FaultyDriver]) -> None:
        self._state = runtime.faults
        self.generic_driver = driver(runtime)
        self.module_driver = driver(runtime)
        self.module: types.ModuleType | None = None

    def switch(self, faults: Faults) -> None:
        """Let `faults` be the ones that are on. Raises nothing."""
        if faults == self._state.now:
            return
        self._state.switch(faults)
        self.generic_driver.replace_methods(faults, generic=True)
        self.module_driver.replace_methods(faults, generic=False)
        if self.module is not None:
            missing = [split_missing(item)[0] for item in faults.missing_methods]
            _hide(self.module, [n for n in missing if n.startswith(MODULE_PREFIX)])


def _hide(module: types.ModuleType, names: list[str]) -> None:
    """Let `module` lack the attributes `module.<name>`, and no others."""
    kind: Any = type(module)
    whole = getattr(kind, "whole_class", kind)
    hidden = frozenset(name.removeprefix(MODULE_PREFIX) for name in names)

    def look_up(self: types.ModuleType, name: str) -> Any:
        if name in hidden:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return whole.__getattribute__(self, name)

    body = {"__getattribute__": look_up, "whole_class": whole}
    module.__class__ = type(whole.__name__, (whole,), body) if hidden else whole
