"""Attention is one operator on the device where the CPU has one, and agrees with the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from omni_platforms.simulator import Simulation

D = "sim"


def run(device: str, *, masked: bool, **how: Any) -> list[torch.Tensor]:
    """Return the result and the gradients of one attention."""
    generator = torch.Generator().manual_seed(3)
    parts = [torch.randn(2, 4, 6, 8, generator=generator) for _ in range(3)]
    parts = [part.to(device).requires_grad_() for part in parts]
    mask = torch.ones(6, 6, dtype=torch.bool).tril().to(device) if masked else None
    result = F.scaled_dot_product_attention(*parts, attn_mask=mask, **how)
    result.pow(2).sum().backward()
    return [x.detach().cpu() for x in (result, *(part.grad for part in parts))]


HOW: dict[str, dict[str, Any]] = {
    "plain": {"masked": False},
    "causal": {"masked": False, "is_causal": True},
    "masked": {"masked": True},
    "scaled": {"masked": False, "scale": 0.3},
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_fused(sim: Simulation, how: dict[str, Any]) -> None:
    want = run("cpu", **how)
    found = sim.explore(lambda: torch.testing.assert_close(run(D, **how), want))
    assert found.ok, str(found)


def test_fused_is_one_task(sim: Simulation) -> None:
    x = torch.ones(2, 4, 6, 8, device=D)
    sim.reset("lazy")
    F.scaled_dot_product_attention(x, x, x, is_causal=True)
    tasks = [x for x in sim.timeline().splitlines() if "enqueues" in x and "free on" not in x]
    assert len(tasks) == 1
    assert "attention" in tasks[0]


def test_the_mathematical_one_where_the_cpu_has_no_fused_one(sim: Simulation) -> None:
    """A bias that needs a gradient: only the plain form has one."""
    x, bias = torch.rand(1, 2, 3, 4), torch.rand(3, 3)
    gradients = []
    for device in ("cpu", D):
        there = bias.to(device, copy=True).requires_grad_()
        y = x.to(device)
        F.scaled_dot_product_attention(y, y, y, attn_mask=there).sum().backward()
        gradients.append(there.grad.cpu())
    torch.testing.assert_close(*gradients)


def test_dropout_drops(sim: Simulation) -> None:
    x = torch.ones(1, 2, 8, 4, device=D)
    torch.manual_seed(1)
    dropped = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    assert dropped.std() > 0
