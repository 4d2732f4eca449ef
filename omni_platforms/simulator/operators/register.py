"""Registers the operators with torch's dispatcher, once for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from omni_platforms.simulator.device_types import PRIVATE_USE_1
from omni_platforms.simulator.operators import autocast, in_tree, refusals, special
from omni_platforms.simulator.operators.attention import FusedAttention, attention, choice
from omni_platforms.simulator.operators.copies import Copies
from omni_platforms.simulator.operators.fallback import Fallback
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.runtime import Runtime

_NATIVE = {  # in the C++ part
    "empty.memory_format",
    "empty_strided",
    "as_strided",
    "view",
    "_reshape_alias",
    "unfold",
    "view_as_real",
    "view_as_complex",
    "set_.source_Storage_storage_offset",
}


class Registration:
    """Keeps the registrations alive; torch drops them with this object."""

    def __init__(
        self, runtime: Runtime, generators: DefaultGenerators, shim: ModuleType, key: str
    ) -> None:
        library: Any = torch.library.Library  # torch gives it no types
        self._everything = library("_", "IMPL")
        self._aten = library("aten", "IMPL")
        self._fallback = Fallback(runtime, generators)
        self._everything.fallback(self._fallback, key)
        for layout, kind in refusals.layout_keys(key).items():
            self._everything.fallback(refusals.LayoutRefusal(kind), layout)
        if key == PRIVATE_USE_1.key:
            self._everything.fallback(torch.library.fallthrough_kernel, autocast.KEY)
            autocast.register(shim, self._aten)
        else:
            for each, name, kernel in in_tree.kernels(key, runtime, self._fallback):
                self._aten.impl(name, kernel, each)
        mine = dict(self._kernels(runtime))
        if key != PRIVATE_USE_1.key:
            del mine["resize_"]  # in the C++ part
        for name, kernel in mine.items():
            self._aten.impl(name, kernel, key)
        made_of_others: dict[str, Callable[..., Any]] = dict(special.CELLS)
        made_of_others["scaled_dot_product_attention"] = attention
        for name, kernel in made_of_others.items():
            for each in (key, f"Autograd{key}"):  # gradients come from the parts
                self._aten.impl(name, kernel, each)
        # Copies resolve these views themselves; torch would resolve them by copying.
        for each in ("Conjugate", "Negative"):
            self._aten.impl("_copy_from", torch.library.fallthrough_kernel, each)
        for name in _shadowed() - _NATIVE - set(mine):
            self._aten.impl(name, self._redirect(name), key)

    def _kernels(self, runtime: Runtime) -> Iterator[tuple[str, Callable[..., Any]]]:
        copies = Copies(runtime)
        convolutions = special.Convolutions(self._fallback)
        fused = FusedAttention(self._fallback)
        yield "_copy_from", copies.copy
        yield "_copy_from_and_resize", copies.copy_and_resize
        yield "_local_scalar_dense", copies.item
        yield "record_stream", _record_stream(runtime)
        yield "resize_", special.resize
        yield "set_", special.set_to_nothing
        yield "set_.source_Tensor", special.set_to_tensor
        yield "set_.source_Storage", special.set_to_storage
        yield "convolution_overrideable", convolutions.forward
        yield "convolution_backward_overrideable", convolutions.backward
        yield "mode.values", special.mode_out
        yield "_fused_sdp_choice", choice
        yield "_scaled_dot_product_fused_attention_overrideable", fused.forward
        yield "_scaled_dot_product_fused_attention_overrideable_backward", fused.backward

    def _redirect(self, name: str) -> Callable[..., Any]:
        base, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, base), overload or "default")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            return self._fallback(op, *args, **kwargs)

        return kernel


def _record_stream(runtime: Runtime) -> Callable[[torch.Tensor, torch.Stream], None]:
    def record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
        queue = runtime.scheduler.queue((stream.device_index, stream.stream_id))
        runtime.memory.record_use(tensor.untyped_storage().data_ptr(), queue)

    return record_stream


def _shadowed() -> set[str]:
    """Return the aten operators whose composite kernel would win over the fallback.

    Where the CPU has a kernel of its own as well, the composite one is for other
    devices, and may treat layouts or types differently. The kernels of
    CompositeExplicitAutogradNonFunctional are not of that kind: they allocate
    the result as the CPU's do and call the operator's `out` form.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and has(name, "CPU")
        and any(has(name, key) for key in composite)
    }
