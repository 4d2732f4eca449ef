"""Each protection of the operators, taken away once: its test must turn red."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.simulator import Simulation
from omni_platforms.simulator.operators import fallback, kernel, shape_cache, shapes
from tests.simulator.operators import test_shapes

Patch = Callable[[pytest.MonkeyPatch], None]
Test = Callable[[Simulation], None]


def _in_place(sim: Simulation) -> None:
    test_shapes.test_an_output_in_place_never_grows(sim, "logical_and_")


MUTATIONS: dict[str, tuple[Patch, Test]] = {
    "marks of conjugation are not written out": (
        lambda patch: patch.setattr(kernel._Thaw, "resolve", lambda self: None),
        test_shapes.test_a_result_that_is_only_marked_conjugate,
    ),
    "outputs in place may grow": (
        lambda patch: patch.setattr(fallback, "check_sizes", lambda call, meta: None),
        _in_place,
    ),
    "shape functions are believed": (
        lambda patch: patch.setattr(shapes, "_CORRECTIONS", {}),
        test_shapes.test_batch_norm_saves_no_statistics_outside_training,
    ),
    "plain arguments are not part of the key": (
        lambda patch: _blind(patch),
        test_shapes.test_what_changes_a_shape_is_not_mixed_up,
    ),
}


def _blind(patch: pytest.MonkeyPatch) -> None:
    """Let the key see tensors only."""
    look = shape_cache._Parts.__call__

    def see(self: shape_cache._Parts, value: object) -> object:
        return look(self, value) if isinstance(value, (torch.Tensor, tuple, dict)) else None

    patch.setattr(shape_cache._Parts, "__call__", see)


@pytest.mark.parametrize(("patch", "check"), MUTATIONS.values(), ids=MUTATIONS)
def test_without_it_the_test_fails(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, patch: Patch, check: Test
) -> None:
    monkeypatch.setattr(sim._registration._fallback, "_shapes", shape_cache.ShapeCache())
    check(sim)
    monkeypatch.setattr(sim._registration._fallback, "_shapes", shape_cache.ShapeCache())
    patch(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        check(sim)
