"""Which types of numbers a simulated device has."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_NAMES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bfloat16", "float16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)

COMPUTED: frozenset[torch.dtype] = frozenset(
    getattr(torch, name) for name in _NAMES if hasattr(torch, name)
)
"""The types that torch's CPU kernels convert to each other, of those that this torch has."""


def supported(without: Iterable[torch.dtype] = ()) -> frozenset[torch.dtype]:
    """Return the types that a device has which lacks those in `without`."""
    return COMPUTED - frozenset(without)
