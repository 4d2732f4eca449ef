"""Mixed precision: which operators run in the lower precision, and which in float32.

torch keeps one list for all backends, as macros of its header file, and each
backend registers them for its own device. A policy says what happens to the
arguments; the casts, and torch's cache of cast weights, are in the C++ part.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

KEY = "AutocastPrivateUse1"

_HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
_MACROS = {
    "LOWER_PRECISION_FP": "lower_precision_fp",
    "FP32": "fp32",
    "FP32_SET_OPT_DTYPE": "fp32_set_opt_dtype",
    "PROMOTE": "promote",
}
_ENTRY = re.compile(r"_\((\w+)(?:,\s*(\w+))?\)")

aten = torch.ops.aten


def policies() -> dict[str, str]:
    """Return the policy of each operator in torch's list: `{"mm": "lower_precision_fp", ...}`."""
    text = _HEADER.read_text().replace("\\\n", " ")
    found = {}
    for macro, policy in _MACROS.items():
        (entries,) = re.findall(rf"#define AT_FORALL_{macro}\(_\)(.*)", text)
        for name, overload in _ENTRY.findall(entries):
            found[f"{name}.{overload}" if overload else name] = policy
    return found


def register(shim: ModuleType, library: Any) -> None:
    """Register torch's whole list, and the few operators with rules of their own."""
    for name, policy in policies().items():
        shim.autocast(name, policy)
    library.impl("norm.Scalar", _norm, KEY)
    library.impl("norm.ScalarOpt_dim", _norm_over, KEY)
    library.impl("binary_cross_entropy", _refused, KEY)


def _without_autocast() -> Any:
    key: Any = torch._C._parse_dispatch_key(KEY)
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key))


def _norm_type(tensor: torch.Tensor) -> torch.dtype:
    """Float32 for what autocast may cast, otherwise the tensor's own type."""
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return torch.float32 if narrow else tensor.dtype


def _norm(tensor: torch.Tensor, p: Any = 2) -> Any:
    with _without_autocast():
        return aten.norm.ScalarOpt_dtype(tensor, p, dtype=_norm_type(tensor))


def _norm_over(tensor: torch.Tensor, p: Any, dim: Any, keepdim: bool = False) -> Any:
    with _without_autocast():
        return aten.norm.ScalarOpt_dim_dtype(tensor, p, dim, keepdim, dtype=_norm_type(tensor))


def _refused(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError(
        "binary_cross_entropy is unsafe under autocast: its gradients may overflow in the lower "
        "precision. Use binary_cross_entropy_with_logits, or leave autocast for the loss."
    )
