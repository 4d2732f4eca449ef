"""Refuses, with one clear error, what simulated devices never have."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from omni_platforms.errors import SimulatorUnsupportedError

_LAYOUTS = {
    "Sparse": "sparse tensors",
    "SparseCsr": "compressed sparse tensors",
    "NestedTensor": "nested tensors of the strided layout",
    "Quantized": "quantized tensors",
}


def layout_keys(key: str) -> dict[str, str]:
    """Return the keys under which torch dispatches tensors that are not dense, by what they are.

    `key` is the dispatch key of the device's dense tensors.
    """
    return {layout + key: kind for layout, kind in _LAYOUTS.items()}


_WORDS = {"sparse": "sparse tensors", "quantize": "quantized tensors", "mkldnn": "MKL-DNN tensors"}


class LayoutRefusal:
    """A fallback that refuses every operator on tensors of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(self, op: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise `SimulatorUnsupportedError`."""
        _refuse(op, self._kind)


def refuse_by_name(op: Any) -> None:
    """Raise `SimulatorUnsupportedError` for an operator that makes tensors that are not dense."""
    name = op._schema.name.partition("::")[2].lstrip("_").removeprefix("to_")
    for word, kind in _WORDS.items():
        if name.startswith(word):
            _refuse(op, kind)


def refuse_results(op: Any, meta: Any) -> None:
    """Raise `SimulatorUnsupportedError` where a result would not be a dense tensor."""
    for result in meta if isinstance(meta, (tuple, list)) else (meta,):
        if not isinstance(result, torch.Tensor):
            continue
        if result.layout != torch.strided or result.is_quantized:
            _refuse(op, f"tensors of layout {result.layout}, type {result.dtype}")


def _refuse(op: Any, kind: str) -> NoReturn:
    raise SimulatorUnsupportedError(
        f"{op}: simulated devices have no {kind}. Keep them on the CPU, or make them dense first "
        "(to_dense(), dequantize(), torch.nested with layout=torch.jagged)."
    )
