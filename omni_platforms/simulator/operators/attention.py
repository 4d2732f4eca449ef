"""Scaled dot product attention as one operator, where the CPU has one, as devices do it."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.simulator.operators.fallback import Fallback

aten = torch.ops.aten
_MATH, _OVERRIDEABLE = 0, 4
"""torch's numbers of the ways to compute attention (`torch.nn.attention.SDPBackend`)."""


def choice(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **how: Any) -> int:
    """`_fused_sdp_choice`: fused where the CPU has a fused kernel for these layouts."""
    standing = [_stand_in(x) for x in (query, key, value, attn_mask)]
    chosen = aten._fused_sdp_choice.default(*standing, *rest, **how)
    return _MATH if chosen == _MATH else _OVERRIDEABLE


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention`, which asks its C++ part for the choice and not the device."""
    how: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
    call = (query, key, value, attn_mask, dropout_p, is_causal)
    if choice(*call, **how) == _MATH:
        return aten._scaled_dot_product_attention_math.default(*call, **how)[0]
    bias = _bias(attn_mask, query.dtype)
    fused = aten._scaled_dot_product_fused_attention_overrideable.default
    return fused(query, key, value, bias, dropout_p, is_causal, scale=scale)[0]


def _bias(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), -torch.inf)


class FusedAttention:
    """The names under which torch asks an outside device for fused attention."""

    def __init__(self, fallback: Fallback) -> None:
        self._fallback = fallback

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_bias: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> tuple[Any, ...]:
        """`_scaled_dot_product_fused_attention_overrideable`; most of its results are CUDA's."""
        result, sums = self._fallback(
            aten._scaled_dot_product_flash_attention_for_cpu.default,
            *(query, key, value, dropout_p, is_causal),
            attn_mask=attn_bias,
            scale=scale,
        )
        none = query.new_empty(0)
        return result, sums, none, none, query.size(2), key.size(2), none, none, none

    def backward(
        self,
        gradient: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_bias: torch.Tensor | None,
        _mask: list[bool],
        result: torch.Tensor,
        sums: torch.Tensor,
        *rest: Any,
        scale: float | None = None,
    ) -> tuple[Any, ...]:
        """`_scaled_dot_product_fused_attention_overrideable_backward`; none for the bias."""
        dropout_p, is_causal = rest[4:6]
        gradients = self._fallback(
            aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            *(gradient, query, key, value, result, sums, dropout_p, is_causal),
            attn_mask=attn_bias,
            scale=scale,
        )
        return *gradients, None


def _stand_in(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return a CPU tensor of the same layout; nobody reads or writes its bytes."""
    if tensor is None:
        return None
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)
