"""Digests of outputs tell values apart, of every type, and need no NumPy."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.audit.digest import digest

TYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool]


@pytest.fixture
def no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors make no arrays, as where NumPy is not installed."""

    def refuse(self: torch.Tensor) -> None:
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", refuse)


@pytest.mark.usefixtures("no_numpy")
@pytest.mark.parametrize("dtype", TYPES)
def test_one_value_that_differs_is_seen_without_numpy(dtype: torch.dtype) -> None:
    first = torch.zeros(2, 3).to(dtype)
    other = torch.tensor([[0, 0, 0], [0, 0, 1]]).to(dtype)
    assert digest(first) == digest(first.clone())
    assert digest(first) != digest(other)


@pytest.mark.usefixtures("no_numpy")
def test_views_count_by_their_values() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    assert digest(whole.t()) == digest(whole.t().contiguous())
    assert digest(whole[:, 1]) == digest(torch.tensor([1.0, 5.0, 9.0]))
    assert digest(torch.empty(0)) != digest(torch.empty(0, 2))
