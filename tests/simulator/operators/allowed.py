"""Where the simulated device may differ from the CPU: one entry an operator, with its reason.

Both ways: an operator that differs without an entry fails, and so does an entry
whose operator does not differ (any more).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """One operator that may differ."""

    why: str
    kind: str
    """`random`: values are compared where they do not depend on the seed; shapes always.
    `undefined`: values are never compared; shapes and types are. `differs`: only `checks` do."""
    checks: tuple[str, ...] = ()
    """The checks in which at least one sample differs otherwise than by its values, as it must."""


def _random(why: str, *checks: str) -> Allowed:
    return Allowed(why, "random", checks)


def _undefined(why: str) -> Allowed:
    return Allowed(why, "undefined")


def _differs(why: str, *checks: str) -> Allowed:
    return Allowed(why, "differs", checks)


_SEEDS = "each operator draws a seed of its own when it is enqueued; the CPU draws as it runs"
_GROWS = _SEEDS + "; and the CPU refuses to grow the output where two tensors are the parameters"
_EMPTY = "the memory is undefined; the simulator fills it with poison"
_SPARSE = "simulated devices refuse sparse tensors (SimulatorUnsupportedError)"

_STATISTICS = "the statistics of half types are float32, as CUDA's are, not of the half type"

_RANDOM_NAMES = """
    bernoulli cauchy exponential geometric log_normal multinomial normal.in_place pca_lowrank
    rand_like randint randint_like randn randn_like svd_lowrank uniform
    nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d
    nn.functional.dropout3d nn.functional.feature_alpha_dropout.with_train
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.multi_head_attention_forward nn.functional.rrelu
    nn.functional.scaled_dot_product_attention
"""
_UNDEFINED_NAMES = "empty empty_like empty_permuted empty_strided new_empty new_empty_strided"
_STATISTICS_NAMES = (
    "_batch_norm_with_update _native_batch_norm_legit native_batch_norm native_layer_norm"
)

ALLOWED: dict[str, Allowed] = {
    **{name: _random(_SEEDS) for name in _RANDOM_NAMES.split()},
    **{name: _undefined(_EMPTY) for name in _UNDEFINED_NAMES.split()},
    **{name: _random(_GROWS, "out") for name in ("normal", "normal.number_mean")},
    "sparse.mm.reduce": _differs(_SPARSE, "forward", "lazy", "strided", "gradients"),
    "sparse.sampled_addmm": _differs(_SPARSE, "forward", "lazy", "strided", "gradients"),
    "to_sparse": _differs(_SPARSE, "forward", "lazy", "strided", "gradients"),
    "tensor_split": _differs(
        "the indices must be on the CPU for every accelerator; the sweep moves them",
        *("forward", "lazy", "strided", "gradients"),
    ),
    **{name: _differs(_STATISTICS, "forward") for name in _STATISTICS_NAMES.split()},
    "nn.functional.linear_cross_entropy.chunked_none": _differs(
        "torch chooses the type to accumulate in by the device's name", "forward"
    ),
    "torch._scaled_mm": _differs(
        "strided factors are refused, as by CUDA's shape rules; the CPU takes them", "strided"
    ),
    "torch._scaled_mm_v2": _differs(
        "strided factors are refused, as by CUDA's shape rules; the CPU takes them", "strided"
    ),
    "addbmm": _differs(
        "torch's shape function refuses to grow the output in place; the CPU grows it", "in place"
    ),
}

HIDDEN_WAITS = {
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::_histogramdd_bin_edges",
    "aten::_histogramdd_from_bin_cts",
    "aten::_histogramdd_from_bin_tensors",
    "aten::_logcumsumexp",
    "aten::geqrf",
    "aten::histogram",
}
"""Operators that make the host wait because torch (2.13) cannot tell their results' shapes."""
