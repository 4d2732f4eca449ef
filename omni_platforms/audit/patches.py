"""Replaces attributes and puts them back, also methods of types that C code made."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

_MISSING: Any = object()


class Patches:
    """Attributes that were replaced, with what they were. Not for several threads at once."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Let `owner.name` be `value` until `close`."""
        self._undo.append((owner, name, vars(owner).get(name, _MISSING)))
        _set(owner, name, value)

    def close(self) -> None:
        """Put everything back, the latest first."""
        while self._undo:
            _set(*self._undo.pop())


def _set(owner: Any, name: str, value: Any) -> None:
    try:
        if value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    except TypeError:
        if not isinstance(owner, type):
            raise
        _set_in_static_type(owner, name, value)


def _set_in_static_type(owner: type, name: str, value: Any) -> None:
    """Change the dictionary of a type that C code made, which Python refuses to.

    `torch.Stream` and `torch.Event` are such types, and no other hook sees
    their `synchronize`. The interpreter forgets what it has cached of the type.
    """
    (namespace,) = gc.get_referents(owner.__dict__)
    if value is _MISSING:
        namespace.pop(name, None)
    else:
        namespace[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
