"""Every operator that torch tests gives on the device what it gives on the CPU."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

from omni_platforms.simulator import Simulation
from tests.simulator.operators.allowed import ALLOWED, HIDDEN_WAITS, Allowed
from tests.simulator.operators.opinfo import Difference, operators
from tests.simulator.operators.variants import CHECKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOT_ALLOWED = Allowed("", "")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """One thread: the tensors are tiny, and the tests run side by side."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def run(sim: Simulation, name: str, check: str) -> None:
    """Run one check of one operator, and hold it and its entry in the list to each other."""
    entry = ALLOWED.get(name, NOT_ALLOWED)
    found: list[tuple[str, Difference]] = []
    for case in CHECKS[check](sim, operators()[name]):
        found.append((case.label, case.difference(entry.kind)))
    differing = [f"{label}\n    {d.text}" for label, d in found if d.text]
    if check in entry.checks:
        assert differing, f"stale: {name} does not differ in {check}"
    else:
        assert not differing, f"{len(differing)} of {len(found)}:\n" + "\n".join(differing[:3])
    if check == "forward" and entry.kind in ("random", "undefined"):
        assert any(d.excused for _, d in found), f"stale: {name} is not {entry.kind}"


def test_forward(sim: Simulation, operator_name: str) -> None:
    run(sim, operator_name, "forward")


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "forward"])
def test_variants(sim: Simulation, operator_name: str, check: str) -> None:
    run(sim, operator_name, check)


def test_hidden_waits_are_listed(sim: Simulation) -> None:
    """Both ways: the list is what the operators of OpInfo do, forward and backward."""
    found: set[str] = set()
    for op in operators().values():
        for check in ("strided", "gradients"):
            for case in itertools.islice(CHECKS[check](sim, op), 3):
                case.difference("undefined")
            found |= set(sim.hidden_waits)
    assert found == HIDDEN_WAITS


def test_every_allowed_operator_exists() -> None:
    assert set(ALLOWED) <= set(operators())
    assert all(entry.why for entry in ALLOWED.values())
    assert {check for entry in ALLOWED.values() for check in entry.checks} <= set(CHECKS)
