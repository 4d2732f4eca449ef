"""Finds what an operator returns without running it: torch's meta kernels know the shapes."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.regions import leaves, tree_map

_OTHER_SHAPES = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"}
"""Operators whose CPU kernel returns other shapes than the shape function says."""

Meta = dict[int, torch.Tensor]
"""For each storage with several tensors in one call: the meta tensor that stands for it."""


def infer(call: Call) -> Any:
    """Return the results of `call` as meta tensors, or `None` where torch cannot tell.

    Raises what the operator itself raises for wrong arguments: shapes, types,
    overlapping outputs. That is at the call, as on a real device.
    """
    op = call.op
    if _depends_on_data(op) or op._schema.name in _OTHER_SHAPES:
        return None
    stand_in = _StandIns(call.args, call.kwargs)
    try:
        return op(*tree_map(stand_in, call.args), **tree_map(stand_in, call.kwargs))
    except NotImplementedError:
        return None
    except RuntimeError as error:
        text = str(error).lower()
        if "meta" in text or "fake" in text:
            return None
        raise


def _depends_on_data(op: Any) -> bool:
    tags = op.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


class _StandIns:
    """Replaces tensors by meta tensors; those that share a storage still share one."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self._bases: Meta = {}
        tensors = [x for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        pointers = [x.untyped_storage().data_ptr() for x in tensors]
        self._shared = {p for p in pointers if p and pointers.count(p) > 1}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("meta")
        return self._tensor(value) if isinstance(value, torch.Tensor) else value

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        pointer = value.untyped_storage().data_ptr()
        if pointer in self._shared:
            made = self._view_of_base(pointer, value)
        else:
            made = torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device="meta"
            )
        if value.is_conj():
            made = torch._conj(made)
        return torch._neg_view(made) if value.is_neg() else made

    def _view_of_base(self, pointer: int, value: torch.Tensor) -> torch.Tensor:
        if pointer not in self._bases:
            nbytes = value.untyped_storage().nbytes()
            self._bases[pointer] = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        made = torch.empty(0, dtype=value.dtype, device="meta")
        storage = self._bases[pointer].untyped_storage()
        return made.set_(storage, value.storage_offset(), value.size(), value.stride())
