"""Which kernel torch picks for an operator on the simulated device."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.simulator import Simulation

D = "sim"
COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


def test_no_composite_kernel_stands_before_the_fallback(sim: Simulation) -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and has(name, "CPU")
    ]
    composite = [name for name in names if any(has(name, key) for key in COMPOSITE)]
    assert {"aten::native_group_norm", "aten::silu_backward"} <= set(composite)
    assert [name for name in composite if not has(name, "PrivateUse1")] == []


@pytest.mark.parametrize("name", ["native_channel_shuffle", "silu_backward", "addr"])
def test_an_operator_with_a_composite_kernel_is_one_task(sim: Simulation, name: str) -> None:
    x = torch.arange(16.0).view(1, 4, 4)
    arguments = {
        "native_channel_shuffle": (x, 2),
        "silu_backward": (x, x + 1),
        "addr": (x[0], x[0, 0], x[0, 1]),
    }[name]
    op = getattr(torch.ops.aten, name)
    there = [a.to(D) if isinstance(a, torch.Tensor) else a for a in arguments]
    sim.reset()
    got = op(*there)
    assert sim.timeline().count("enqueues") == 1
    torch.testing.assert_close(got.cpu(), op(*arguments))
