"""Operators give what the CPU gives, under each schedule, and fail where a device fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_flatten

from omni_platforms.errors import SimulatedFaultError
from omni_platforms.simulator import Simulation

D = "sim"
Function = Callable[..., Any]
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))


def assert_agrees(sim: Simulation, function: Function, *inputs: torch.Tensor) -> None:
    """Assert that `function` gives the same on the CPU and, under each schedule, on the device."""
    want = tree_flatten(function(*(x.clone() for x in inputs)))[0]

    def scenario() -> None:
        got = tree_flatten(function(*(x.to(D) for x in inputs)))[0]
        assert all(x.device.type == D for x in got)
        torch.testing.assert_close([x.cpu() for x in got], want, atol=1e-4, rtol=1e-4)

    found = sim.explore(scenario, seeds=2)
    assert found.ok, str(found)


def outputs(*dtypes: torch.dtype) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    return lambda x: tuple(torch.empty(0, dtype=dtype, device=x.device) for dtype in dtypes)


PAIR = outputs(torch.float32, torch.int64)
CASES: dict[str, Function] = {
    "views": lambda x: x.view(2, 10)[1].unflatten(0, (2, 5)).t()[1:, ::2],
    "median out": lambda x: torch.median(x, 1, out=PAIR(x)),
    "kthvalue out": lambda x: torch.kthvalue(x, 2, 1, out=PAIR(x)),
    "topk out": lambda x: torch.topk(x, 2, out=PAIR(x)),
    "mode": lambda x: torch.mode(x, 1),
    "nonzero": lambda x: (x > 0).nonzero(),
    "nonzero out": lambda x: torch.nonzero(x > 0, out=outputs(torch.int64)(x)[0]),
    "masked_select out": lambda x: torch.masked_select(x, x > 0, out=outputs(x.dtype)(x)[0]),
    "add out": lambda x: torch.add(x, 1, out=outputs(x.dtype)(x)[0]),
    "unique": lambda x: torch.unique((x * 2).int(), return_inverse=True, return_counts=True),
    "index": lambda x: (x[torch.tensor([1, 0])], x[x > 0], x[:, [0, 2]]),
    "index_put": lambda x: x.index_put_((torch.tensor([1, 0]),), torch.tensor(2.0)),
    "number remainder": lambda x: torch.remainder(5, x),
    "remainder number": lambda x: torch.remainder((x * 8).int(), 3),
    "remainder of types": lambda x: torch.remainder(7.5, (x * 8).int() + 50),
    "fmod": lambda x: torch.fmod(torch.tensor(5.0), x),
    "xlogy": lambda x: (torch.xlogy(2, x.abs()), torch.xlogy(x.abs(), 2)),
    "zeta": lambda x: torch.special.zeta(2, x.abs() + 1),
    "copysign": lambda x: torch.copysign(x, -1),
    "bits": lambda x: torch.bitwise_left_shift(1, (x.abs() * 3).int()),
    "half and number": lambda x: (x.half() * 0.1, torch.xlogy(x.half().abs(), 0.3)),
    "cpu number": lambda x: (torch.tensor(2.0) + x, x * torch.tensor(3)),
    "foreach": lambda x: (torch._foreach_mul([x, x + 1], 2), torch._foreach_norm([x])),
    "linalg": lambda x: (torch.linalg.svdvals(x), torch.linalg.inv(x[:, :4])),
    "fft": lambda x: torch.fft.fft(x).abs(),
    "cat": lambda x: torch.cat([x, x * 2]),
}


@pytest.mark.parametrize("function", CASES.values(), ids=CASES)
def test_operators(sim: Simulation, function: Function) -> None:
    assert_agrees(sim, function, X)


IMAGE_CASES: dict[str, Function] = {
    "group norm": lambda x: F.group_norm(x.contiguous(memory_format=torch.channels_last), 3),
    "group norm strided": lambda x: F.group_norm(x.permute(0, 1, 3, 2), 3),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "batch norm": lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
    "pooling": lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)),
    "scaling": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "padding": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
}


@pytest.mark.parametrize("function", IMAGE_CASES.values(), ids=IMAGE_CASES)
def test_operators_on_images(sim: Simulation, function: Function) -> None:
    assert_agrees(sim, function, IMAGE)


def test_an_operator_that_writes_and_returns(sim: Simulation) -> None:
    op = torch.ops.aten._native_batch_norm_legit

    def function(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        return op(x, None, None, mean, variance, True, 0.1, 1e-5), mean, variance

    assert_agrees(sim, function, IMAGE, torch.zeros(3), torch.ones(3))


def test_embedding_bags(sim: Simulation) -> None:
    index, offsets = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])
    for mode in ("mean", "max", "sum"):
        assert_agrees(
            sim, lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m), X, index % 4, offsets
        )


MODULES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "batch norm": (lambda: nn.BatchNorm2d(3), IMAGE),
    "batch norm eval": (lambda: nn.BatchNorm2d(3).eval(), IMAGE),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        IMAGE,
    ),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), IMAGE),
    "lstm": (lambda: nn.LSTM(5, 3), IMAGE[0]),
    "gru": (lambda: nn.GRU(5, 3), IMAGE[0]),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0), torch.randn(3, 2, 8)),
}


@pytest.mark.parametrize(("build", "data"), MODULES.values(), ids=MODULES)
def test_modules_with_gradients(
    sim: Simulation, build: Callable[[], nn.Module], data: torch.Tensor
) -> None:
    torch.manual_seed(0)
    state = build().state_dict()

    def run(device: str) -> list[torch.Tensor]:
        module = build()
        module.load_state_dict(state)
        module.to(device)
        result = module(data.to(device))
        result = result[0] if isinstance(result, tuple) else result
        result.pow(2).sum().backward()
        gradients = [p.grad for p in module.parameters()]
        return [x.cpu() for x in (result.detach(), *gradients, *module.buffers())]

    def scenario() -> None:
        torch.testing.assert_close(run(D), run("cpu"), atol=1e-4, rtol=1e-3)

    found = sim.explore(scenario)
    assert found.ok, str(found)


def test_random_numbers_do_not_depend_on_the_schedule(sim: Simulation) -> None:
    seen: list[list[float]] = []

    def scenario() -> None:
        torch.manual_seed(3)
        first = torch.randn(4, device=D)
        torch.randperm(9, device=D)
        dropped = F.dropout(torch.ones(40, device=D))
        seen.append([*first.tolist(), *dropped.tolist()])

    found = sim.explore(scenario, seeds=5)
    assert found.ok, str(found)
    assert all(values == seen[0] for values in seen)


def test_generators_and_their_states(sim: Simulation) -> None:
    state, ours = sim.module.get_rng_state(), torch.get_rng_state()
    first = torch.rand(4, device=D).tolist()
    assert torch.rand(4, device=D).tolist() != first
    sim.module.set_rng_state(state)
    assert torch.rand(4, device=D).tolist() == first
    generator = torch.Generator(D).manual_seed(5)
    values = [torch.rand(4, device=D, generator=generator).tolist() for _ in range(2)]
    assert values[0] != values[1]
    generator.manual_seed(5)
    assert torch.rand(4, device=D, generator=generator).tolist() == values[0]
    assert torch.equal(torch.get_rng_state(), ours)


WRONG: dict[str, Function] = {
    "shapes": lambda x: x.add_(torch.ones(7, device=D)),
    "types": lambda x: x.int().add_(1.5),
    "devices": lambda x: x + torch.ones(5),
    "two devices": lambda x: x + torch.ones(5, device=f"{D}:1"),
    "internal overlap": lambda x: x[:1].expand(3, 5).add_(1),
    "partial overlap": lambda x: torch.add(x[0, :-1], 1, out=x[0, 1:]),
}


@pytest.mark.parametrize("function", WRONG.values(), ids=WRONG)
def test_wrong_arguments_fail_at_the_call(sim: Simulation, function: Function) -> None:
    sim.reset("lazy")
    there = X.to(D)
    with pytest.raises(RuntimeError) as caught:
        function(there)
    assert not isinstance(caught.value, SimulatedFaultError)


def fail_on_device() -> torch.Tensor:
    """Queue an operation that fails when it runs: an index that is out of range."""
    return F.embedding(torch.tensor([9]).to(D), torch.ones(3, 2, device=D))


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_failure_shows_at_the_next_wait_and_once(sim: Simulation, schedule: str) -> None:
    for wait in ("synchronize", "event", "query", "copy"):
        sim.reset(schedule)
        result = fail_on_device()
        event = torch.accelerator.current_stream().record_event()
        waits: dict[str, Function] = {
            "synchronize": torch.accelerator.synchronize,
            "event": event.synchronize,
            "query": lambda e=event: [e.query() for _ in range(9)],
            "copy": result.cpu,
        }
        with pytest.raises(SimulatedFaultError, match=r"aten\.\S+ on stream 0\.0 failed"):
            waits[wait]()
        torch.accelerator.synchronize()


def test_a_failure_does_not_reach_the_next_run(sim: Simulation) -> None:
    sim.reset("lazy")
    fail_on_device()
    sim.reset()
    torch.accelerator.synchronize()
    found = sim.explore(fail_on_device)
    assert len(found.failures) == len(found.schedules)
    torch.accelerator.synchronize()


def test_shapes_that_only_the_data_tells_make_the_host_wait(sim: Simulation) -> None:
    x = X.to(D)
    before = sim.host_waits
    torch.relu(x).add_(1).sum()
    assert sim.host_waits == before
    x.nonzero()
    assert sim.host_waits == before + 1
