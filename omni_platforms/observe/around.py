"""Putting a step around a method of one object, and taking it away again.

The step is an attribute of the object that hides its class's method. An object without one runs
exactly what it ran before: there is no flag to look at.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

Around = Callable[..., Any]
"""Called with the method, bound to its object, and with the arguments of the call."""


def put_around(owner: Any, name: str, around: Around) -> None:
    """Let `owner.name(...)` call `around(method, ...)` instead of the method.

    The object does not hold itself by it, so it still goes when nobody else holds it.
    """
    method = getattr(type(owner), name)
    reference = weakref.ref(owner)

    @functools.wraps(method)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(method, reference()), *args, **kwargs)

    vars(owner)[name] = stepped


def take_away(owner: Any, *names: str) -> None:
    """Let these methods be the class's own again."""
    for name in names:
        vars(owner).pop(name, None)
