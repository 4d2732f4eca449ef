"""Refuses torch's inductor compiler on simulated devices, by name and with the way out.

Inductor asks the device's module for the classes that generate code (torch
2.13, _inductor/codegen/common.py, `init_backend_registration`). The backends
"eager" and "aot_eager" of `torch.compile` work.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from omni_platforms.errors import SimulatorUnsupportedError

NAMES = frozenset({"Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"})
"""What inductor looks up in a device's module."""


class InductorRefusal:
    """Stands for inductor's code generators of a simulated device."""

    supports_caching = False

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.create()

    @staticmethod
    def create(*_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise `SimulatorUnsupportedError`."""
        raise SimulatorUnsupportedError(
            "inductor generates code for real devices and simulated ones have none. Use "
            "torch.compile(..., backend='aot_eager'), or 'eager', on a simulated device."
        )


def code_generator(device_type: str) -> type[InductorRefusal]:
    """Return the class that refuses; called by inductor, so that importing it costs nothing."""
    common: Any = torch._inductor.codegen.common  # type: ignore[attr-defined]
    common.device_op_overrides_dict.setdefault(device_type, common.DeviceOpOverrides())
    return InductorRefusal
