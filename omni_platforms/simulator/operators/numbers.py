"""Python numbers in the place of tensors, such as `torch.xlogy(2, x)`."""

from __future__ import annotations

from typing import Any

import torch

_WIDEST = {int: torch.int64, float: torch.float64, complex: torch.complex128, bool: torch.bool}


def numbers_as_tensors(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace the numbers that `op` takes only as tensors by CPU tensors of one element.

    torch hands such a number to Python without the tensor that it was wrapped
    in, and then refuses it. For a few operators it does not, and needs no help.
    """
    arguments = op._schema.arguments
    places = [
        place
        for place, value in enumerate(args)
        if type(value) in _WIDEST and str(arguments[place].type) in ("Tensor", "Optional[Tensor]")
    ]
    if not places or torch._C._should_allow_numbers_as_tensors(op._schema.name.split("::")[-1]):
        return args, kwargs
    others = [value for value in args if isinstance(value, torch.Tensor)]
    changed = list(args)
    for place in places:
        changed[place] = _tensor_of(args[place], others)
    return tuple(changed), kwargs


def _tensor_of(number: Any, others: list[torch.Tensor]) -> torch.Tensor:
    """Return a tensor that changes the type of the result as little as the number would."""
    wide = _WIDEST[type(number)]
    if others and torch.result_type(others[0], number) != torch.result_type(
        others[0], torch.empty((), dtype=wide, device="meta")
    ):
        wide = torch.result_type(others[0], number)
    return torch.tensor(number, dtype=wide, device="cpu")
