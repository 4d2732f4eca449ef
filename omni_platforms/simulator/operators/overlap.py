"""Refuses outputs that cannot take the result, at the call, as torch does elsewhere."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.regions import is_dense, spans


def check_overlap(call: Call) -> None:
    """Raise `RuntimeError` when an element-wise operator writes over a part of its input.

    The kernel would find it too, but only when it runs, which may be much later.
    """
    if not call.written or torch.Tag.pointwise not in call.op.tags:
        return
    for output in call.written:
        for tensor in call.tensors:
            if tensor is not output and _overlap_in_part(output, tensor):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the "
                    "written-to tensor refer to a single memory location. Please clone() "
                    "the tensor before performing the operation."
                )


def check_sizes(call: Call, meta: Any) -> None:
    """Raise `RuntimeError` when an output that is read as well would have to grow.

    That is an operator in place, or one whose `out` is also its input. The
    kernel would resize its own view of the bytes and write past the tensor.
    """
    results = meta if isinstance(meta, (tuple, list)) else (meta,)
    returns = call.op._schema.returns
    written = [x for x, value in zip(results, returns, strict=False) if value.alias_info]
    for tensor, result in zip(call.written, written, strict=False):
        if not isinstance(result, torch.Tensor) or tensor.size() == result.size():
            continue
        if _is_in_place(call, tensor):
            raise RuntimeError(
                f"output with shape {list(tensor.size())} doesn't match the broadcast shape "
                f"{list(result.size())}"
            )


def _is_in_place(call: Call, output: torch.Tensor) -> bool:
    if not any(output is x for x in call.out):
        return True
    element_wise = torch.Tag.pointwise in call.op.tags or call.op._schema.name == "aten::addr"
    return element_wise and sum(output is x for x in call.tensors) > 1


def _overlap_in_part(output: torch.Tensor, tensor: torch.Tensor) -> bool:
    mine, other = spans(output), spans(tensor)
    if not mine or not other or not is_dense(output) or not is_dense(tensor):
        return False
    if mine[0].low >= other[0].high or other[0].low >= mine[0].high:
        return False
    return mine != other or output.stride() != tensor.stride()
