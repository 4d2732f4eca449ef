"""Finds what an operator returns without running it: torch's meta kernels know the shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.regions import leaves, tree_map

_OTHER_SHAPES = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"}
"""Operators whose CPU kernel returns other shapes than the shape function says."""

_LIKE = {
    "aten::_ctc_loss_backward": "log_probs",
    "aten::fractional_max_pool3d_backward": "self",
    "aten::multi_margin_loss_backward": "self",
    "aten::multilabel_margin_loss_backward": "self",
}
"""Operators without a shape function in torch 2.13 whose result is as large as this argument."""

Meta = dict[int, torch.Tensor]
"""For each storage with several tensors in one call: the meta tensor that stands for it."""


def _batch_norm(call: Call, meta: Any) -> Any:
    """Return no saved statistics where the running ones are used, as torch's kernels do."""
    if call.named("training"):
        return meta
    result, *saved = meta
    return result, *(statistic.new_empty(0) for statistic in saved)


def _group_norm(call: Call, meta: Any) -> Any:
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    x = call.named("input")
    if not any(_is_contiguous(x, layout) for layout in formats):
        raise RuntimeError("Expected X.is_contiguous(memory_format) to be true, but got false.")
    return meta


def _is_contiguous(x: torch.Tensor, layout: torch.memory_format) -> bool:
    dims = {torch.channels_last: 4, torch.channels_last_3d: 5}
    return x.dim() == dims.get(layout, x.dim()) and x.is_contiguous(memory_format=layout)


def _masked_scatter(call: Call, meta: Any) -> Any:
    call.named("mask").expand(call.named("self").size())  # raises where it does not fit
    return meta


_CORRECTIONS: dict[str, Callable[[Call, Any], Any]] = {
    "aten::native_batch_norm": _batch_norm,
    "aten::_native_batch_norm_legit": _batch_norm,
    "aten::native_group_norm": _group_norm,
    "aten::masked_scatter_": _masked_scatter,
}
"""Where torch's shape functions say or allow something else than its kernels (torch 2.13)."""


def infer(call: Call) -> Any:
    """Return the results of `call` as meta tensors, or `None` where torch cannot tell.

    Raises what the operator itself raises for wrong arguments: shapes, types,
    overlapping outputs. That is at the call, as on a real device.
    """
    op = call.op
    if depends_on_data(call) or op._schema.name in _OTHER_SHAPES:
        return None
    if op._schema.name in _LIKE:
        like = call.named(_LIKE[op._schema.name])
        return torch.empty(like.size(), dtype=like.dtype, device="meta")
    stand_in = _StandIns(call.args, call.kwargs)
    try:
        found = op(*tree_map(stand_in, call.args), **tree_map(stand_in, call.kwargs))
    except NotImplementedError:
        return None
    except RuntimeError as error:
        text = str(error).lower()
        if "meta" in text or "fake" in text:
            return None
        raise
    correct = _CORRECTIONS.get(op._schema.name)
    return found if correct is None else correct(call, found)


def depends_on_data(call: Call) -> bool:
    """Whether the shapes of the results depend on data, so that every device makes one wait."""
    if call.op._schema.name == "aten::index":
        indices = call.named("indices")
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in indices)
    tags = call.op.tags
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
