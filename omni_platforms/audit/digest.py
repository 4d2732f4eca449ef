"""A digest of a nest of values, by which two runs are compared."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch


def digest(value: Any) -> str:
    """Return a digest of tensors, arrays and plain objects in any nest. Copies to the host."""
    hasher = hashlib.sha256()
    _add(hasher, value)
    return hasher.hexdigest()


def _add(hasher: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key in value:
            hasher.update(f"key {key!r}".encode())
            _add(hasher, value[key])
    elif isinstance(value, list | tuple):
        hasher.update(f"{len(value)} items".encode())
        for each in value:
            _add(hasher, each)
    elif isinstance(value, torch.Tensor):
        _add_tensor(hasher, value)
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):  # an array
        hasher.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    else:
        hasher.update(repr(value).encode())


def _add_tensor(hasher: Any, tensor: torch.Tensor) -> None:
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    hasher.update(f"{host.dtype} {list(host.shape)}".encode())
    # Bytes, whatever the type, and without NumPy, which need not be installed.
    if host.numel():
        hasher.update(ctypes.string_at(host.data_ptr(), host.nbytes))
