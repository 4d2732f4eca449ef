"""Which tensors count as the device's: those on it, or, without one, those of the CPU.

With the CPU taken as a device, every CPU tensor is a device tensor except those
that a program for an accelerator would have on the host: what `.cpu()`,
`.to("cpu")` and `device="cpu"` (written out, not as a variable) make, what
`torch.tensor` and `torch.from_numpy` make without a device, and what is computed
from such tensors alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from types import FrameType, GetSetDescriptorType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from omni_platforms.audit.frames import position, segment, user_frame

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def holds_data(tensor: Any) -> bool:
    """Whether `tensor` is a real one, not one that stands for others (fake, functional)."""
    kind = type(tensor)
    if kind in _PLAIN:
        return True
    if not isinstance(tensor, torch.Tensor):
        return False
    return kind.__torch_dispatch__ is _NO_DISPATCH and not torch._is_functional_tensor(tensor)


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has bytes of its own: not a sparse one, nor one inside `vmap` or `grad`."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.layout is torch.strided and not wrapped


class DeviceWorld:
    """The tensors of an accelerator, real or simulated."""

    def __init__(self, device_type: str) -> None:
        def by_name(tensor: Any) -> bool:
            return not tensor.is_cpu and bool(tensor.device.type == device_type)

        own = vars(torch._C.TensorBase).get(f"is_{device_type}")  # a third of the cost, if C code
        self.is_there = own.__get__ if isinstance(own, GetSetDescriptorType) else by_name
        """Whether a tensor that holds data is on the accelerator."""

    def on_device(self, tensor: Any) -> bool:
        """Whether `tensor` is on the accelerator."""
        if type(tensor) is not torch.Tensor and not holds_data(tensor):
            return False
        return bool(self.is_there(tensor))


class CpuWorld:
    """The tensors of the CPU, taken as an accelerator's."""

    def __init__(self) -> None:
        self.host = HostTensors()

    def on_device(self, tensor: Any) -> bool:
        """Whether a program for an accelerator would have `tensor` on it."""
        return holds_data(tensor) and self.is_there(tensor)

    def is_there(self, tensor: Any) -> bool:
        """The same of a tensor that holds data."""
        return bool(tensor.device.type == "cpu") and tensor not in self.host


class HostTensors:
    """Storages that are the host's; one that is gone is forgotten."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Let the storage of `tensor`, and all views of it, be the host's."""
        if not has_storage(tensor):
            return
        if len(self._known) > 4096:
            self._known = {key: ref for key, ref in self._known.items() if not ref.expired()}
        storage = tensor.untyped_storage()
        # The weak reference keeps the address from being used again.
        self._known[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]

    def discard(self, tensor: torch.Tensor) -> None:
        """Let the storage of `tensor` be the device's again."""
        if has_storage(tensor):
            self._known.pop(tensor.untyped_storage()._cdata, None)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        if not self._known or not has_storage(tensor):
            return False
        return tensor.untyped_storage()._cdata in self._known


class HostPropagation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator of a thread and follows which results are the host's."""

    def __init__(self, world: CpuWorld) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._host = world.host

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and mark what it makes."""
        result = func(*args, **(kwargs or {}))
        made = [t for t in _tensors(result) if has_storage(t) and t not in self._host]
        if made and self._makes_host(args, kwargs or {}):
            for tensor in made:
                self._host.add(tensor)
        return result

    def _makes_host(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if kwargs.get("device") is not None and names_the_cpu(_frame_outside()):
            return True
        given = [*_tensors(args), *_tensors(tuple(kwargs.values()))]
        return bool(given) and all(tensor in self._host for tensor in given)


def _tensors(nest: Any) -> Iterator[torch.Tensor]:
    if isinstance(nest, torch.Tensor):
        if holds_data(nest):
            yield nest
    elif isinstance(nest, tuple | list):
        for each in nest:
            yield from _tensors(each)


def _frame_outside() -> FrameType:
    return user_frame(sys._getframe(2))


_written_out: dict[tuple[int, int], bool] = {}
_kept: list[Any] = []  # code objects, whose ids are keys


def names_the_cpu(frame: FrameType) -> bool:
    """Whether the expression that `frame` evaluates says "cpu" itself: the host, not a device."""
    key = (id(frame.f_code), frame.f_lasti)
    known = _written_out.get(key)
    if known is None:
        _kept.append(frame.f_code)
        whole_line = None in position(frame)
        known = _written_out[key] = says_cpu(segment(frame), whole_line)
    return known


_ON_A_LINE = re.compile(r"""(?:device\s*=\s*|\bto\s*\(\s*)(?:torch\.device\(\s*)?["']cpu["']""")


def says_cpu(source: str, whole_line: bool = False) -> bool:
    """Whether the call that `source` is names "cpu" as its own device, not inside an argument.

    Before Python 3.11 `source` is a whole line, and any call on it counts.
    """
    if whole_line:
        return bool(_ON_A_LINE.search(source))
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return bool(_ON_A_LINE.search(source))
    if not isinstance(call, ast.Call):
        return False
    named = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
        named += call.args[:1]
    return any(_is_cpu(node) for node in named)


def _is_cpu(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "device":
        return bool(node.args) and _is_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"
