"""Copies, on the device, of tensors that their worker will overwrite."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.outputs.host_copy import copies_asynchronously, snapshot
from omni_platforms.outputs.nest import flatten


def snapshots(nest: Any) -> Any:
    """Return `nest` with its device tensors copied in the order of their current stream.

    Does not wait for the device. Host tensors stay: the hand-over copies them before it returns.
    """
    leaves, rebuild = flatten(nest)
    return rebuild([_snapshot(leaf) for leaf in leaves])


def _snapshot(leaf: Any) -> Any:
    on_device = (
        isinstance(leaf, torch.Tensor)
        and leaf.device.type not in ("cpu", "meta")
        and copies_asynchronously(leaf, leaf.device)
    )
    return snapshot(leaf) if on_device else leaf
