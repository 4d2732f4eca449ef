"""Operators that need more than the fallback: storages, convolutions, cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.simulator.operators.fallback import Fallback

aten = torch.ops.aten


def resize(
    tensor: torch.Tensor,
    size: Sequence[int],
    *,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """`resize_`: the storage grows where it must, and never shrinks."""
    layout = torch.empty(
        size, device="meta", memory_format=memory_format or torch.contiguous_format
    )
    needed = (layout.numel() + tensor.storage_offset()) * tensor.element_size()
    storage = tensor.untyped_storage()
    if layout.numel() and needed > storage.nbytes():
        storage.resize_(int(needed))
    return tensor.set_(storage, tensor.storage_offset(), layout.size(), layout.stride())


def set_to_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`set_` to another tensor."""
    return tensor.set_(
        source.untyped_storage(), source.storage_offset(), source.size(), source.stride()
    )


def set_to_storage(tensor: torch.Tensor, source: torch.UntypedStorage) -> torch.Tensor:
    """`set_` to a whole storage."""
    return tensor.set_(source, 0, [source.nbytes() // tensor.element_size()], [1])


def set_to_nothing(tensor: torch.Tensor) -> torch.Tensor:
    """`set_` without arguments: an empty tensor."""
    return tensor.set_(torch.empty(0, device=tensor.device).untyped_storage(), 0, [0], [1])


class Convolutions:
    """The two names under which torch asks an outside device for convolutions."""

    def __init__(self, fallback: Fallback) -> None:
        self._fallback = fallback

    def forward(self, *args: Any) -> Any:
        """`convolution_overrideable`."""
        return self._fallback(aten.convolution.default, *args)

    def backward(self, gradient: Any, data: Any, weight: Any, *rest: Any) -> Any:
        """`convolution_backward_overrideable`, which has no shape of the bias."""
        *settings, mask = rest
        bias = [weight.size(1) * rest[5] if rest[3] else weight.size(0)]
        return self._fallback(
            aten.convolution_backward.default, gradient, data, weight, bias, *settings, mask
        )


def mode_out(
    tensor: torch.Tensor,
    dim: int = -1,
    keepdim: bool = False,
    *,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`mode.values`, whose kernel in torch refuses devices that it does not know by name."""
    found = aten.mode.default(tensor, dim, keepdim)
    values.resize_(found[0].size()).copy_(found[0])
    indices.resize_(found[1].size()).copy_(found[1])
    return values, indices


def lstm_cell(
    from_input: torch.Tensor,
    from_hidden: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_thnn_fused_lstm_cell`, for which torch has no CPU kernel."""
    gates = from_input + from_hidden
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + bias
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    after = forget * cell + enter * new
    workspace = torch.cat([enter, forget, new, leave], 1)
    return leave * after.tanh(), after, workspace


def gru_cell(
    from_input: torch.Tensor,
    from_hidden: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_thnn_fused_gru_cell`, for which torch has no CPU kernel."""
    x = from_input if input_bias is None else from_input + input_bias
    h = from_hidden if hidden_bias is None else from_hidden + hidden_bias
    x_reset, x_update, x_new = x.chunk(3, 1)
    h_reset, h_update, h_new = h.chunk(3, 1)
    reset, update = (x_reset + h_reset).sigmoid(), (x_update + h_update).sigmoid()
    new = (x_new + reset * h_new).tanh()
    workspace = torch.cat([reset, update, new, hidden, h_new], 1)
    return new + update * (hidden - new), workspace


CELLS = {"_thnn_fused_lstm_cell": lstm_cell, "_thnn_fused_gru_cell": gru_cell}
"""The fused recurrent cells, made of operators that the CPU has."""
