"""Mixed precision on a simulated device: torch's whole list, its policies and its cache."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from omni_platforms.simulator import Simulation
from omni_platforms.simulator.operators import autocast

D = "sim"
HALF, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def registered(key: str) -> set[str]:
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


def ones(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device=D)


def test_the_list_is_that_of_torchs_own_backend(sim: Simulation) -> None:
    """torch registers its list for other devices too, also where it was built for the CPU."""
    own = {name for name in registered("AutocastCUDA") if not name.startswith("cudnn_")}
    assert registered(autocast.KEY) == own
    found = autocast.policies()
    assert len(found) > 100
    assert set(found.values()) == {"lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote"}


@pytest.mark.parametrize("lower", [HALF, BF16])
def test_each_policy(sim: Simulation, lower: torch.dtype) -> None:
    with torch.autocast(D, dtype=lower):
        assert (ones(2, 2) @ ones(2, 2)).dtype == lower
        assert F.linear(ones(2, 2), ones(2, 2, dtype=BF16)).dtype == lower
        assert F.scaled_dot_product_attention(*[ones(1, 2, 4)] * 3).dtype == lower
        assert torch.exp(ones(2, dtype=lower)).dtype == F32
        assert F.layer_norm(ones(2, 2, dtype=lower), (2,)).dtype == F32
        assert ones(2, 2, dtype=lower).softmax(-1).dtype == F32
        assert ones(2, dtype=lower).sum().dtype == F32
        assert ones(2, dtype=lower).sum(dtype=HALF).dtype == HALF  # asked for
        assert torch.dot(ones(2, dtype=lower), ones(2)).dtype == F32  # the wider one
        assert torch.dot(ones(2, dtype=lower), ones(2, dtype=lower)).dtype == lower
        assert ones(2, dtype=lower).norm().dtype == F32
        assert torch.norm(ones(2, 2, dtype=lower), dim=1).dtype == F32
        assert (ones(2, dtype=lower) + ones(2)).dtype == F32  # not in the list
        assert (ones(2, 2, dtype=F64) @ ones(2, 2, dtype=F64)).dtype == F64  # never cast
        assert ones(2, dtype=torch.int32).sum().dtype == torch.int64
    assert (ones(2, 2) @ ones(2, 2)).dtype == F32


def test_the_default_is_half_and_other_types_are_refused(sim: Simulation) -> None:
    assert torch.get_autocast_dtype(D) == HALF
    with pytest.warns(UserWarning, match="is not supported"), torch.autocast(D, dtype=F32):
        assert (ones(2, 2) @ ones(2, 2)).dtype == F32
    with torch.autocast(D, enabled=False):
        assert (ones(2, 2) @ ones(2, 2)).dtype == F32


def test_a_loss_that_is_unsafe_is_refused(sim: Simulation) -> None:
    with torch.autocast(D), pytest.raises(RuntimeError, match="with_logits"):
        F.binary_cross_entropy(ones(2), ones(2))
    assert F.binary_cross_entropy(ones(2), ones(2)).item() == 0


@pytest.mark.parametrize("cache", [True, False])
def test_a_weight_is_cast_once(sim: Simulation, cache: bool) -> None:
    layer = torch.nn.Linear(8, 8, bias=False, device=D)
    value = ones(2, 8, dtype=HALF)
    peaks = []
    with torch.autocast(D, cache_enabled=cache):
        for _ in range(3):
            before = torch.accelerator.memory_stats()["allocation.all.allocated"]
            kept = layer(value)
            peaks.append(torch.accelerator.memory_stats()["allocation.all.allocated"] - before)
            assert kept.dtype == HALF
    once = peaks[1] if cache else peaks[0] - 1
    assert peaks == ([once + 1, once, once] if cache else [once + 1] * 3)


def test_gradients_reach_the_weights_in_their_own_type(sim: Simulation) -> None:
    layer = torch.nn.Linear(4, 4, device=D)
    with torch.autocast(D, dtype=BF16):
        loss = F.mse_loss(layer(ones(2, 4)), ones(2, 4))
    assert loss.dtype == F32
    loss.backward()
    grad = layer.weight.grad
    assert grad is not None
    assert grad.dtype == F32
    assert grad.device == layer.weight.device


def test_lists_of_tensors_are_cast(sim: Simulation) -> None:
    with torch.autocast(D, dtype=BF16):
        product = torch.linalg.multi_dot([ones(2, 2), ones(2, 2), ones(2, 2, dtype=BF16)])
        assert torch.einsum("ij,jk->ik", ones(2, 2), ones(2, 2)).dtype == BF16
    assert product.dtype == BF16
    assert product.float().cpu().tolist() == [[4.0, 4.0], [4.0, 4.0]]
