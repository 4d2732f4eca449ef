"""Reads of numbers pass over the dispatcher's kernel where torch itself reads, and only there.

The CPU stands for a device whose reads are torch's own; no simulated device has such.
"""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from omni_platforms.audit import SyncAudit
from omni_platforms.audit.reading import Directly
from omni_platforms.audit.worlds import DeviceWorld
from omni_platforms.platform.cpu import CpuPlatform
from tests.simulated import NAME

READS = {
    "item": lambda x: x.item(),
    "int": lambda x: int(x),
    "float": lambda x: float(x),
    "complex": lambda x: complex(x),
    "index": lambda x: [0, 1, 2][x],
    "bool": lambda x: bool(x),
    "if": lambda x: 1 if x else 0,
}
READ = "aten._local_scalar_dense.default"


@pytest.fixture(autouse=True)
def _the_cpu_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: DeviceWorld, device_type: str) -> None:
        self.is_there = lambda tensor: tensor.device.type == device_type

    monkeypatch.setattr(DeviceWorld, "__init__", init)


def audit() -> SyncAudit:
    return SyncAudit(CpuPlatform(), cpu_as_device=False)


def found(running: SyncAudit) -> list[tuple[str, int, list[str]]]:
    return [(site.kind, site.count, site.seen_by) for site in running.report().sites]


@pytest.mark.parametrize("name", list(READS))
def test_each_read_is_seen_where_it_is_asked_for(name: str) -> None:
    tensor = torch.tensor(2)
    kind = "truth_value" if name in ("bool", "if") else "scalar_read"
    without = READS[name](tensor)
    with audit() as running:
        for _ in range(3):
            assert READS[name](tensor) == without
    assert found(running) == [(kind, 3, ["call"])]
    assert running.report().operators == {READ: 3}


def test_reads_inside_other_calls_are_the_operators() -> None:
    x, at = torch.arange(3.0), torch.tensor(1)
    with audit() as running:
        x[:at]  # asks for __index__
        torch.full((1,), at)
        torch.equal(x, x)
    assert sorted(found(running)) == [
        ("scalar_read", 1, ["call"]),
        ("scalar_read", 1, ["operator"]),
        ("truth_value", 1, ["operator"]),
    ]


def test_code_of_others_runs_inside_as_ever() -> None:
    """What a mode does may need the kernels that a direct read passes over."""

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            torch.empty(1)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            torch.empty(1)
            return func(*args, **(kwargs or {}))

    tensor = torch.tensor(2.0)
    # A mode for functions calls on when it is out of the way itself.
    for mode, source in ((Functions, "call"), (Operators, "operator")):
        with audit() as running, mode():
            assert tensor.item() == 2.0
        assert found(running) == [("scalar_read", 1, [source])]


def test_a_read_that_needs_those_kernels_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Directly] = []
    make = Directly.__init__

    def noting(self: Directly, device_type: str) -> None:
        make(self, device_type)
        states.append(self)

    monkeypatch.setattr(Directly, "__init__", noting)
    plain, odd = torch.tensor(2.0), torch.tensor(3j).conj()  # which is copied before it is read
    with audit() as running:
        assert plain.item() == 2.0
        with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
            torch.ones(2).item()
        assert states[-1].works
        assert torch.empty(1).numel() == 1  # nothing is passed over any more
        assert odd.item() == -3j
        assert not states[-1].works
        assert plain.item() == 2.0
    assert sorted(found(running)) == [
        ("scalar_read", 1, ["call"]),
        ("scalar_read", 1, ["operator"]),
        ("scalar_read", 1, ["operator"]),
    ]
    assert running.report().operators[READ] == 3


def test_who_reads_directly(sim) -> None:
    assert Directly("cpu").works
    assert not Directly(NAME).works
    assert not Directly("privateuseone").works


def test_compiled_functions_are_compiled_as_without() -> None:
    """The same graphs, none of them anew, and the read between them is seen."""
    from torch._dynamo.testing import CompileCounter

    graphs = CompileCounter()

    @torch.compile(backend=graphs)
    def function(x: torch.Tensor) -> torch.Tensor:
        total = (x * 2).sum().item()
        return x + total if bool((x > 0).all()) else x

    x = torch.ones(3)
    function(x)
    before = graphs.frame_count
    with audit() as running:
        assert function(x).tolist() == [7.0] * 3
    assert graphs.frame_count == before
    with audit() as again:
        torch._dynamo.reset()
        graphs.clear()
        assert function(x).tolist() == [7.0] * 3
    assert graphs.frame_count == before
    for each in (running, again):
        assert {"scalar_read", "truth_value"} <= {site.kind for site in each.report().sites}
