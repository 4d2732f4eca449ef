"""`torch.xpu` under torch's own XPU device type, in a build of torch without XPU.

The module is torch's own: its Python files run as they are, and what they call
in `torch._C` is put in their place (`xpu_calls.py`). So the quirks are the real
ones and need no code here: no `default_stream`, a capability that is a
dictionary, `Event(blocking=...)` a `TypeError`, no registration of existing
memory, no statistics of pinned memory and no `set_sync_debug_mode`
(torch 2.13, `xpu/__init__.py`, `xpu/streams.py`, `xpu/memory.py`).
"""

from __future__ import annotations

import importlib
import types

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.device_types import XPU
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.vendors import xpu_calls, xpu_streams
from omni_platforms.simulator.vendors.vendor import Vendor

_KEPT = ("_queued_calls", "_lazy_seed_tracker")  # seeds that were set before the device came up


class Xpu(Vendor):
    """Fills the place of XPU in torch."""

    device_type = XPU

    def refusal(self, name: str) -> str | None:
        """Return why this process cannot simulate XPU, or `None`."""
        if torch._C._has_xpu:
            return (
                "this torch was built with XPU, whose device type is taken by the real one. "
                "Simulate xpu with a build of torch for the CPU."
            )
        if torch._C._get_privateuse1_backend_name() != "privateuseone":
            return (
                "this process has an outside device already, and torch takes one accelerator a "
                "process. Simulate xpu in a process of its own."
            )
        return None

    def claim(self, name: str) -> None:
        """Nothing: torch knows the name."""

    def install(
        self, runtime: Runtime, driver: Driver, generators: DefaultGenerators
    ) -> types.ModuleType:
        """Let torch's own module see a device, and return it."""
        _check_that_torch_sees_it()
        calls = xpu_calls.calls(runtime, driver)
        calls["_xpu_isInBadFork"] = lambda: runtime.gate.forked
        calls["_XpuStreamBase"] = xpu_streams.stream_base(driver)
        calls["_XpuEventBase"] = xpu_streams.XpuEventBase
        calls["_XpuDeviceProperties"] = xpu_calls.XpuProperties
        calls["_xpu_init"] = lambda: _start(runtime, generators)
        vars(torch._C).update(calls, _has_xpu=True)
        return _run_again(torch.xpu)


def _check_that_torch_sees_it() -> None:
    if torch._C._get_accelerator() != torch.device("xpu"):
        raise SimulatorStateError(
            "torch looked for an accelerator before xpu was simulated, and remembers that there "
            "was none. Call simulate('xpu') first thing after torch is imported."
        )


def _run_again(module: types.ModuleType) -> types.ModuleType:
    """Run torch's files again, whose classes were made without a device to stand on."""
    kept = {name: getattr(module, name) for name in _KEPT}
    for part in ("streams", "graphs"):
        importlib.reload(importlib.import_module(f"{module.__name__}.{part}"))
    importlib.reload(module)
    vars(module).update(kept)
    return module


def _start(runtime: Runtime, generators: DefaultGenerators) -> None:
    """What torch's `_xpu_init` does: give the module what only a device has."""
    vars(torch.xpu).update(
        default_generators=generators.generators,
        _get_device_properties=lambda index: xpu_calls.properties(runtime, index),
    )
