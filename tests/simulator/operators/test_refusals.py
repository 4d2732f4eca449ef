"""What simulated devices do not have is refused by one typed error that names the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.errors import SimulatorUnsupportedError
from omni_platforms.simulator import Simulation

D = "sim"

LAYOUTS: dict[str, Callable[[], object]] = {
    "to_sparse": lambda: torch.eye(3, device=D).to_sparse(),
    "to_sparse_csr": lambda: torch.eye(3, device=D).to_sparse_csr(),
    "sparse to the device": lambda: torch.eye(3).to_sparse().to(D),
    "sparse_coo_tensor": lambda: torch.sparse_coo_tensor([[0], [1]], [2.0], (3, 3), device=D),
    "csr used": lambda: torch.eye(3).to_sparse_csr().to(D) @ torch.eye(3, device=D),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3, device=D), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)], device=D).unbind(),
    "mkldnn": lambda: torch.ones(3, device=D).to_mkldnn(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(sim: Simulation, function: Callable[[], object]) -> None:
    sim.reset("lazy")
    with pytest.raises(SimulatorUnsupportedError, match=r"simulated devices have no .* Keep"):
        function()


def test_jagged_nested_tensors_work(sim: Simulation) -> None:
    parts = [torch.ones(2), torch.arange(3.0)]
    there = torch.nested.nested_tensor(parts, layout=torch.jagged, device=D)
    assert [part.tolist() for part in (there * 2).unbind()] == [[2.0, 2.0], [0.0, 2.0, 4.0]]


def compiled(backend: str) -> Callable[[torch.Tensor], torch.Tensor]:
    torch._dynamo.reset()
    return torch.compile(lambda x: (x + 1).relu(), backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_compilers_work(sim: Simulation, backend: str) -> None:
    assert compiled(backend)(torch.tensor([-3.0, 1.0], device=D)).tolist() == [0.0, 2.0]


def test_inductor(sim: Simulation) -> None:
    """torch wraps the error of a compiler; its text says what to do."""
    with pytest.raises(Exception, match=r"Use torch\.compile.*backend='aot_eager'") as caught:
        compiled("inductor")(torch.ones(3, device=D))
    inner = getattr(caught.value, "inner_exception", caught.value.__cause__)
    assert isinstance(inner, SimulatorUnsupportedError)


def test_an_unknown_name_is_no_attribute(sim: Simulation) -> None:
    with pytest.raises(AttributeError, match=r"torch\.sim.*no_such_thing"):
        _ = sim.module.no_such_thing
