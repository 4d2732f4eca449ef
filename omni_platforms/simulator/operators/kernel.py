"""What the task of an operator runs: torch's CPU kernel, on the bytes of its arguments."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.device_memory import DeviceMemory
from omni_platforms.simulator.operators import randomness
from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.operators.regions import Region, device_region, tree_map


class Kernel:
    """The CPU kernel of one call, with the arguments as they are when it is enqueued."""

    def __init__(
        self,
        call: Call,
        kwargs: dict[str, Any],
        memory: DeviceMemory,
        generators: DefaultGenerators,
    ) -> None:
        freeze = _Freeze(call, memory)
        self._op = call.op
        self._args = tree_map(freeze, call.args)
        self._kwargs = tree_map(freeze, kwargs)
        self._generators = generators
        self._generator = self._kwargs.get("generator")
        self._device = call.device
        self._seed: int | None = None
        self.is_random = randomness.is_random(call.op)
        """Whether it draws random numbers."""
        if self.is_random:
            self.draw()

    def draw(self) -> None:
        """Take the seed of the next run: when it is enqueued, and before each replay of a graph."""
        self._seed = self._generators.draw_seed(self._generator, self._device)

    def __call__(self) -> Any:
        """Run the operator on CPU tensors over the bytes of its arguments."""
        thaw = _Thaw()
        args = tree_map(thaw, self._args)
        kwargs = tree_map(thaw, self._kwargs)
        result = self._run(args, kwargs)
        thaw.resolve()
        return result

    def _run(self, args: Any, kwargs: Any) -> Any:
        if self._seed is None:
            return self._op(*args, **kwargs)
        if randomness.takes_generator(self._op):
            kwargs["generator"] = torch.Generator().manual_seed(self._seed)
        with randomness.default_generator_at(self._seed):
            return self._op(*args, **kwargs)


class _Freeze:
    """Takes the values of arguments as they are now."""

    def __init__(self, call: Call, memory: DeviceMemory) -> None:
        self._call = call
        self._memory = memory

    def __call__(self, value: Any) -> Any:
        if self._call.is_mine(value):
            return device_region(self._memory, value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.clone() if isinstance(value, torch.Tensor) else value


class _Thaw:
    """Makes CPU tensors over the bytes of the arguments."""

    def __init__(self) -> None:
        self._complex: list[tuple[Region, torch.Tensor]] = []

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, Region):
            return value
        made = value.tensor()
        if made.dtype.is_complex:
            self._complex.append((value, made))
        return made

    def resolve(self) -> None:
        """Write out what a kernel only marked: some conjugate their output by its flag."""
        for region, tensor in self._complex:
            if tensor.is_conj() != region.conjugate:
                region.tensor().copy_(tensor.clone())


def store(target: Region, value: torch.Tensor | None) -> None:
    """Put a CPU kernel's result where the shape function said that it would be.

    A kernel may return nothing, or nothing in it, for a result that nobody asked for.
    Raises `SimulatorStateError` for a result of another shape.
    """
    if value is None:
        return
    place = target.tensor()
    if place.size() == value.size():
        place.copy_(value)
    elif value.numel():
        raise SimulatorStateError(
            f"the CPU kernel returned a shape of {tuple(value.size())} where torch's shape "
            f"function said {tuple(place.size())}: this operator cannot be simulated"
        )
