"""Refuses outputs that partly overlap an input, at the call, as torch does elsewhere."""

from __future__ import annotations

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


def _overlap_in_part(output: torch.Tensor, tensor: torch.Tensor) -> bool:
    mine, other = spans(output), spans(tensor)
    if not mine or not other or not is_dense(output) or not is_dense(tensor):
        return False
    if mine[0].low >= other[0].high or other[0].low >= mine[0].high:
        return False
    return mine != other or output.stride() != tensor.stride()
