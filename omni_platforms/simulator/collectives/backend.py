"""Registers the device's backend with `torch.distributed`, under its vendor's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from omni_platforms.simulator.runtime import Runtime

_NAMES = {"npu": "hccl", "musa": "mccl"}


def backend_name(device_type: str) -> str:
    """Return the vendor's name of the backend: hccl for npu, mccl for musa, others simccl.

    Sources: torch_npu 2.14.0, `_init/registry/distributed.py`; torch_musa 2.7.1,
    `csrc/distributed/Register.cpp`.
    """
    return _NAMES.get(device_type, "simccl")


def register(runtime: Runtime) -> None:
    """Let `init_process_group` find the backend; does nothing where torch has no distributed."""
    if not dist.is_available() or not dist.is_gloo_available():
        return

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        from omni_platforms.simulator.collectives.process_group import SimulatedProcessGroup

        return SimulatedProcessGroup(runtime, store, rank, size, timeout)

    name = backend_name(runtime.name)
    dist.Backend.register_backend(name, create, devices=[runtime.name])
