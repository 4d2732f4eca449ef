"""One call of an operator, as the fallback sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.simulator.operators.numbers import numbers_as_tensors
from omni_platforms.simulator.operators.regions import leaves
from omni_platforms.simulator.runtime import Runtime


class Call:
    """One call of an operator: its tensors, its device and what it writes."""

    def __init__(self, runtime: Runtime, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.op = op
        self.args, self.kwargs = numbers_as_tensors(op, args, kwargs)
        self._device_type = runtime.name
        everything = leaves((args, kwargs))
        self.tensors = [x for x in everything if self.is_mine(x)]
        self.device = self._find_device(everything, runtime)
        self.written = self._written(lambda argument: argument.alias_info is not None)
        self.out = self._written(lambda argument: argument.is_out)

    def is_mine(self, value: Any) -> bool:
        """Whether `value` is a tensor of the simulated accelerator."""
        return isinstance(value, torch.Tensor) and value.device.type == self._device_type

    @property
    def is_view(self) -> bool:
        """Whether the operator returns views of its arguments and writes nothing."""
        schema = self.op._schema
        aliases = [result.alias_info for result in schema.returns]
        return not schema.is_mutable and any(alias is not None for alias in aliases)

    def torch_device(self) -> torch.device:
        """Return the device that the operator runs on."""
        return torch.device(self._device_type, self.device)

    def argument(self, place: int, argument: Any) -> Any:
        """Return the value passed for the argument at `place` of the schema."""
        if not argument.kwarg_only and place < len(self.args):
            return self.args[place]
        return self.kwargs.get(argument.name)

    def named(self, name: str) -> Any:
        """Return the value passed for the argument `name` of the schema."""
        for place, argument in enumerate(self.op._schema.arguments):
            if argument.name == name:
                return self.argument(place, argument)
        raise LookupError(f"{self.op} has no argument {name!r}")

    def _written(self, chosen: Callable[[Any], bool]) -> list[torch.Tensor]:
        found = []
        for place, argument in enumerate(self.op._schema.arguments):
            alias = argument.alias_info
            if alias is not None and alias.is_write and chosen(argument):
                found += [x for x in leaves(self.argument(place, argument)) if self.is_mine(x)]
        return found

    def _find_device(self, everything: list[Any], runtime: Runtime) -> int:
        for value in everything:
            if self._is_alien(value):
                raise _wrong_device(self.op, value.device, self._device_type)
        indices = {tensor.device.index for tensor in self.tensors}
        if len(indices) > 1:
            raise _wrong_device(self.op, *sorted(str(tensor.device) for tensor in self.tensors))
        if indices:
            return int(indices.pop())
        asked = [x.index for x in everything if isinstance(x, torch.device) and x.index is not None]
        return int(asked[0]) if asked else runtime.threads.device

    def _is_alien(self, value: Any) -> bool:
        """Whether `value` is a tensor from elsewhere, other than a number or a CPU index."""
        if not isinstance(value, torch.Tensor) or self.is_mine(value):
            return False
        if value.device.type != "cpu":
            return True
        return value.dim() > 0 and "index" not in self.op._schema.name


def _wrong_device(op: Any, *devices: Any) -> RuntimeError:
    return RuntimeError(
        f"{op}: Expected all tensors to be on the same device, but found "
        + " and ".join(str(device) for device in devices)
    )
