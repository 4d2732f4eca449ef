"""Shapes are known at the call, once for each layout, and refused at the call where they clash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from omni_platforms.errors import SimulatedFaultError
from omni_platforms.simulator import Simulation
from omni_platforms.simulator.operators import shape_cache, shapes

D = "sim"


@pytest.fixture
def inferred(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose shape functions ran, in order."""
    names: list[str] = []
    infer = shapes.infer

    def counted(call: Any) -> Any:
        names.append(call.op._schema.name)
        return infer(call)

    monkeypatch.setattr(shapes, "infer", counted)
    return names


def test_a_shape_function_runs_once_for_each_layout(sim: Simulation, inferred: list[str]) -> None:
    for _ in range(3):
        result = F.layer_norm(torch.ones(3, 11, device=D), (11,))
        assert result.size() == (3, 11)
    assert inferred.count("aten::native_layer_norm") == 1
    assert F.layer_norm(torch.ones(5, 11, device=D), (11,)).size() == (5, 11)
    assert inferred.count("aten::native_layer_norm") == 2


class Emptied(dict):  # type: ignore[type-arg]
    """What another thread's clearing looks like: nothing is left after any look-up."""

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        self.clear()
        return found

    def get(self, key: object, default: object = None) -> object:
        found = super().get(key, default)
        self.clear()
        return found


def test_another_thread_may_empty_what_is_remembered(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = shape_cache.ShapeCache()
    monkeypatch.setattr(cache, "_known", Emptied())
    monkeypatch.setattr(sim._registration._fallback, "_shapes", cache)
    x = torch.ones(2, 3, device=D)
    for _ in range(3):
        assert x.mode(0).values.size() == (3,)


Function = Callable[[torch.Tensor], torch.Tensor]
PAIRS: list[tuple[Function, Function]] = [
    (lambda x: x.mode(0).values, lambda x: x.mode(1).values),
    (lambda x: x.median(0).values, lambda x: x.median(0, keepdim=True).values),
    (lambda x: x * 2, lambda x: x * 2.0),
    (lambda x: x.flip(0), lambda x: x.float().flip(0)),
    (lambda x: x.roll(1, 0), lambda x: x.t().roll(1, 0)),
]
"""Each pair differs in one thing that the result depends on."""


def test_what_changes_a_shape_is_not_mixed_up(sim: Simulation) -> None:
    x = torch.arange(12).view(3, 4)
    for pair in PAIRS:
        for function in (*pair, *pair):
            want, got = function(x), function(x.to(D))
            assert (got.size(), got.stride()) == (want.size(), want.stride())
            torch.testing.assert_close(got.cpu(), want)


def test_the_default_type_counts(sim: Simulation) -> None:
    x = torch.arange(4, device=D)
    assert (x / 3).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert (x / 3).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["logical_and_", "floor_divide_", "ldexp_", "addr_"])
def test_an_output_in_place_never_grows(sim: Simulation, name: str) -> None:
    """The kernel would write past the tensor; torch's CPU refuses it at the call."""
    sim.reset("lazy")
    whole = torch.ones(2, 5, device=D)
    others = [torch.ones(5, device=D)] * (2 if name == "addr_" else 1)
    with pytest.raises(RuntimeError) as caught:
        getattr(whole[:, :1] if name != "addr_" else whole[0], name)(*others)
    assert not isinstance(caught.value, SimulatedFaultError)
    assert whole.tolist() == [[1.0] * 5] * 2


def test_a_result_that_is_only_marked_conjugate(sim: Simulation) -> None:
    factors, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    target = torch.randn(4, 3, dtype=torch.complex64)
    want = torch.linalg.lu_solve(factors, pivots, target, left=False, adjoint=True)
    there = [x.to(D) for x in (factors, pivots, target)]
    got = torch.linalg.lu_solve(*there, left=False, adjoint=True)
    torch.testing.assert_close(got.cpu(), want.resolve_conj())


def test_batch_norm_saves_no_statistics_outside_training(sim: Simulation) -> None:
    x, ones = torch.ones(2, 3, 4, device=D), torch.ones(3, device=D)
    for training, saved in ((True, 3), (False, 0)):
        found = torch.native_batch_norm(x, ones, ones, ones.clone(), ones, training, 0.1, 1e-5)
        assert [y.numel() for y in found] == [24, saved, saved]


def test_hidden_waits(sim: Simulation) -> None:
    x = torch.rand(20, device=D)
    (x > 0.5).nonzero()
    assert x[x > 0.5].dim() == 1
    assert sim.hidden_waits == {}
    before = sim.host_waits
    torch.histogram(x, 4)
    assert sim.hidden_waits == {"aten::histogram": 1}
    assert sim.host_waits == before + 1
    sim.reset()
    assert sim.hidden_waits == {}
