"""The ways in which each operator of OpInfo is called, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from omni_platforms.simulator import Simulation
from tests.simulator.operators.opinfo import (
    Arguments,
    Case,
    all_samples,
    main_type,
    samples,
)

Cases = Iterator[Case]
Check = Callable[[Simulation, Any], Cases]


def forward(sim: Simulation, op: Any) -> Cases:
    """Every sample, under the eager schedule."""
    sim.reset()
    for sample in all_samples(op):
        yield Case(sample.summary(), op, sample)


def lazy(sim: Simulation, op: Any) -> Cases:
    """Two samples, with nothing run before it is waited for, and with one stream lazy."""
    for schedule in ("lazy", "lazy:0.0"):
        for sample in _some(op, 2):
            sim.reset(schedule)
            yield Case(f"{schedule} {sample.summary()}", op, sample)


def strided(sim: Simulation, op: Any) -> Cases:
    """Samples whose tensors are not contiguous."""
    sim.reset()
    for sample in _some(op, 4):
        yield Case(sample.summary(), op, _strided(sample))


def in_place(sim: Simulation, op: Any) -> Cases:
    """The variant that writes its first argument."""
    sim.reset()
    for function in (op.inplace_variant, op.inplace_operator_variant):
        for sample in _some(op, 4) if function else ():
            yield Case(sample.summary(), function, sample)


def out(sim: Simulation, op: Any) -> Cases:
    """The variant with `out=`: empty tensors, and transposed ones of the right shape."""
    sim.reset()
    for sample in _some(op, 4) if op.supports_out else ():
        for made, how in ((_empty, "empty"), (_transposed, "transposed")):
            function = _into(op, sample, made)
            if function is not None:
                yield Case(f"{how} {sample.summary()}", function, sample)


def gradients(sim: Simulation, op: Any) -> Cases:
    """The gradients of the floating-point results with respect to all arguments."""
    sim.reset()
    dtype = main_type(op)
    if (
        dtype is None
        or not op.supports_autograd
        or dtype not in op.supported_backward_dtypes("cpu")
    ):
        return
    for sample in samples(op, dtype, 4, requires_grad=True):
        yield Case(sample.summary(), _backward(op, sample), sample)


CHECKS: dict[str, Check] = {
    "forward": forward,
    "lazy": lazy,
    "strided": strided,
    "in place": in_place,
    "out": out,
    "gradients": gradients,
}


def _some(op: Any, at_most: int) -> list[Any]:
    dtype = main_type(op)
    return [] if dtype is None else samples(op, dtype, at_most)


def _strided(sample: Any) -> Any:
    """Return the sample with tensors that are not contiguous, in the place of dense ones."""
    from torch.testing._internal.common_utils import noncontiguous_like

    def change(value: Any) -> Any:
        dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
        return noncontiguous_like(value) if dense else value

    return sample.transform(change)


def _empty(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=like.dtype, device=device)


def _transposed(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = torch.zeros(like.size()[::-1], dtype=like.dtype, device=device)
    return made.permute(list(range(like.dim()))[::-1])


def _into(op: Any, sample: Any, made: Any) -> Callable[..., Any] | None:
    try:
        arguments = Arguments.of(sample, "cpu")
        like = op(*arguments.args, **arguments.kwargs)
    except Exception:  # noqa: BLE001 - the forward check compares errors
        return None
    several = isinstance(like, tuple)
    if not all(isinstance(x, torch.Tensor) for x in (like if several else [like])):
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        where = _device_of(args, kwargs)
        target = tuple(made(x, where) for x in like) if several else made(like, where)
        result = op(*args, **kwargs, out=target)
        return result, target

    return call


def _device_of(*values: Any) -> torch.device:
    found = tree_flatten(values)[0]
    tensors = [x.device for x in found if isinstance(x, torch.Tensor)]
    named = [torch.device(x) for x in found if isinstance(x, torch.device)]
    return (tensors + named + [torch.device("cpu")])[0]


def _backward(op: Any, sample: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        results = tree_flatten(sample.output_process_fn_grad(op(*args, **kwargs)))[0]
        results = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
        inputs = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        inputs = [x for x in inputs if x.requires_grad]
        seeds = [torch.linspace(0.5, 1.5, x.numel()).view(x.size()).to(x) for x in results]
        return torch.autograd.grad(results, inputs, seeds, allow_unused=True)

    return call
