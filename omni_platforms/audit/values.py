"""Values as the audit compares and shows them. Nothing here waits for a device."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, NamedTuple

import torch

from omni_platforms.audit.constancy import UNKNOWN
from omni_platforms.audit.worlds import has_storage, holds_data

COMPARED_BYTES = 64 << 10
"""Contents of more bytes are not compared."""
_SHOWN_ELEMENTS = 8


class Value(NamedTuple):
    """What a site read: equal tokens for equal values, and what is shown of it."""

    token: Any
    what: Any
    nbytes: int

    def show(self) -> Any:
        """Return the value for a report: a number, or a text of the first elements."""
        return _show_tensor(self.what) if isinstance(self.what, torch.Tensor) else self.what


def of_number(number: Any, nbytes: int) -> Value:
    """Return the value of a number that was read; every NaN is the same."""
    return Value(number if number == number else "nan", number, nbytes)


def of_host_tensor(tensor: torch.Tensor) -> Value:
    """Return the value of a host tensor, by its bytes. The host must not have to wait for them."""
    if not holds_data(tensor) or not has_storage(tensor):
        return Value(UNKNOWN, None, 0)
    nbytes = tensor.nbytes
    if nbytes > COMPARED_BYTES or not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return Value(UNKNOWN, None, nbytes)
    data = ctypes.string_at(tensor.data_ptr(), nbytes) if nbytes else b""
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return Value((digest, tensor.dtype, tensor.shape), tensor, nbytes)


def of_data(data: Any, nbytes: int) -> Value:
    """Return the value of what `torch.tensor` was given: numbers, a list of them, an array."""
    if isinstance(data, torch.Tensor):
        return of_host_tensor(data) if data.device.type == "cpu" else Value(UNKNOWN, None, nbytes)
    if isinstance(data, bool | int | float | complex):
        return of_number(data, nbytes)
    if nbytes > COMPARED_BYTES:
        return Value(UNKNOWN, None, nbytes)
    text = repr(data.tolist() if hasattr(data, "tolist") else data)
    return Value(text, text if len(text) <= 60 else text[:57] + "...", nbytes)


def _show_tensor(tensor: torch.Tensor) -> str:
    flat = tensor.detach().reshape(-1)
    values = ", ".join(f"{value:.6g}" for value in flat[:_SHOWN_ELEMENTS].tolist())
    more = ", ..." if flat.numel() > _SHOWN_ELEMENTS else ""
    return f"shape {list(tensor.shape)}: [{values}{more}]"
