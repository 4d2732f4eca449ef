"""Remembers what shape functions said: models call the same operators on the same shapes.

torch's shape functions written in Python cost milliseconds a call; what they
return depends only on the layouts and the plain arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.regions import leaves

_MOST = 4096
_PLAIN = (
    *(bool, int, float, complex, str),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_UNKNOWN = object()
_PURE = ("aten::", "prims::")
"""Namespaces whose shape functions are torch's own, without state."""


class ShapeCache:
    """Results of shape functions by call. Any thread may use it.

    It has no lock: each step on the dictionary is one step for other threads,
    and a lock could be asked for twice by one thread, in a finalizer.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get(self, call: Call, infer: Callable[[Call], Any]) -> Any:
        """Return what `infer` says of `call`, from an earlier call where there was one.

        The result is shared: it must only be read. Errors are not remembered.
        """
        key = _key(call)
        if key is None:
            return infer(call)
        found = self._known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = infer(call)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found


def _key(call: Call) -> Hashable | None:
    """Return all that the shape of `call`'s results depends on; `None` when that is unknown."""
    if not call.op._schema.name.startswith(_PURE):
        return None
    parts = _Parts((call.args, call.kwargs))
    try:
        return call.op, torch.get_default_dtype(), parts(call.args), parts(call.kwargs)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """An argument of a kind whose effect on shapes is not known."""


class _Parts:
    """The parts of one call's key."""

    def __init__(self, everything: Any) -> None:
        tensors = [x for x in leaves(everything) if isinstance(x, torch.Tensor)]
        found = {x.untyped_storage()._cdata for x in tensors}
        self._numbers = {storage: number for number, storage in enumerate(sorted(found))}
        self._shared = len(found) < len(tensors)

    def __call__(self, value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            return self._layout(value)
        if value is None or isinstance(value, _PLAIN):
            return type(value), repr(value) if isinstance(value, float) else value
        if isinstance(value, (list, tuple)):
            return type(value), tuple(self(item) for item in value)
        if isinstance(value, dict):
            return tuple((key, self(item)) for key, item in value.items())
        raise _UnknownError

    def _layout(self, tensor: torch.Tensor) -> Hashable:
        """Return the layout; where tensors share a storage, also which one, and where in it."""
        place: Hashable = None
        if self._shared:
            storage = tensor.untyped_storage()
            place = self._numbers[storage._cdata], tensor.storage_offset()
        views = tensor.is_conj(), tensor.is_neg()
        return tensor.dtype, tensor.size(), tensor.stride(), views, tensor.device.type, place
