"""Copies of one leaf on the host: blocking, and started on a side stream.

Every copy owns exactly its own bytes, keeps the strides of a dense tensor and
carries no autograd graph. Nothing here depends on the caller's default device
or dtype.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch

from omni_platforms.errors import UnsupportedOutputError
from omni_platforms.platform.interface import OmniPlatform


def own_tensors() -> AbstractContextManager[Any]:
    """Return a context whose new tensors are normal ones, also in a caller's inference mode.

    Results and buffers made in inference mode could not be written to outside it.
    """
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NOTHING


_NOTHING = contextlib.nullcontext()


def nbytes_of(leaf: Any) -> int:
    """Return the bytes of one leaf's values (zero for layouts that do not say)."""
    if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
        return 0
    return int(leaf.nbytes)


def copies_asynchronously(leaf: Any, device: torch.device) -> bool:
    """Whether `leaf` is a plain strided tensor on `device`, which a side stream can copy."""
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.device == device
        and leaf.layout is torch.strided
        and not leaf.is_quantized
        and not leaf.is_nested
        and type(leaf).__torch_dispatch__ is _PLAIN_DISPATCH
    )


# Tensor subclasses with a dispatch of their own may hold no bytes at this level.
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def snapshot(leaf: torch.Tensor) -> torch.Tensor:
    """Copy a device tensor on its device, in the order of the caller's current stream."""
    return leaf.detach().clone()


def blocking_copy(leaf: Any) -> Any:
    """Return a private host copy of a tensor or NumPy array; the host waits for it.

    Raises `UnsupportedOutputError` for a tensor that has no data.
    """
    if not isinstance(leaf, torch.Tensor):
        return leaf.copy(order="K")
    if leaf.is_meta:
        raise UnsupportedOutputError(
            f"a meta tensor of shape {tuple(leaf.shape)} has no data to hand over: "
            "materialize it on a device first"
        )
    if leaf.device.type == "cpu":
        return resolved(leaf.detach()).clone()
    return resolved(leaf.detach()).to("cpu")


def start_copy(leaf: Any, device: torch.device, platform: OmniPlatform) -> torch.Tensor | None:
    """Enqueue a copy of a tensor on `device` into pinned memory on the current stream.

    Returns the host tensor, whose bytes are right once the stream has come
    this far, or `None` when the host has to wait for it: a tensor of another
    device or layout, or no pinned memory. Temporaries belong to the current
    stream, so it may free them in its own order; `leaf` must stay alive until
    the copy is done.
    """
    if not copies_asynchronously(leaf, device):
        return None
    source = resolved(leaf.detach())
    if source.numel() == 0:
        return torch.empty_like(source, device="cpu")
    if not source.is_contiguous():
        source, target = _strided_target(source, platform)
    else:
        target = platform.pinned_empty(source.shape, source.dtype)
    if target is not None:
        target.copy_(source, non_blocking=True)
    return target


def _strided_target(
    source: torch.Tensor, platform: OmniPlatform
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return `source` as a dense tensor and a host tensor with the same strides.

    With equal dense strides the copy is one transfer; otherwise torch would go
    through pageable memory and make the host wait.
    """
    strides = torch.empty_like(source, device="meta").stride()
    if source.stride() != strides:
        source = source.clone()
    flat = platform.pinned_empty((source.numel(),), source.dtype)
    return source, None if flat is None else flat.as_strided(source.shape, strides)


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Carry out a lazy conjugation or negation where the tensor is.

    torch would carry it out on the host right after enqueuing the copy, that
    is on bytes that have not arrived yet.
    """
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor
