"""CUDA_VISIBLE_DEVICES is read as the CUDA runtime reads it."""

from __future__ import annotations

import pytest

from omni_platforms_cuda.nvml import NvidiaDriver
from omni_platforms_cuda.visible import visible_devices

A, B, C = "GPU-aa11-0001", "GPU-aa22-0002", "GPU-cc33-0003"
M, N = "MIG-ee-1", "MIG-ff-2"
DRIVER = NvidiaDriver("580", (A, B, C), (M, N))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (A, B, C)),
        ("", ()),
        (" ", ()),
        ("0", (A,)),
        ("2,0", (C, A)),
        (" 1 , 2 ", (B, C)),
        ("+1", (B,)),
        ("1x,2y", (B, C)),
        ("-1", ()),
        ("0,-1,1", (A,)),
        ("0,3,1", (A,)),
        ("0,,1", (A,)),
        ("none", ()),
        ("NoDevFiles", ()),
        ("99999999999999999999", ()),
        ("0,0", ()),
        ("1,2,1", ()),
        (A, (A,)),
        (f"{C},{A}", (C, A)),
        ("GPU-cc", (C,)),
        ("GPU-aa22,GPU-cc", (B, C)),
        ("GPU-aa", ()),  # ambiguous
        ("GPU-cc,GPU-aa,GPU-aa22", (C,)),
        ("GPU-cc,GPU-cc33", ()),  # the same device by two names
        ("GPU-zz", ()),
        ("gpu-cc33-0003", ()),
        ("GPU-cc,1", (C,)),
        ("0,GPU-cc", (A,)),
        (M, (M,)),
        (f"{N},{M}", (N, M)),
        ("MIG-ee,GPU-cc", (M,)),
        ("MIG-zz", ()),
    ],
)
def test_visible_devices(value: str | None, expected: tuple[str, ...]) -> None:
    assert visible_devices(value, DRIVER) == expected
