"""Functions and methods of Python that are watched on audited threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.compiler import is_dynamo_compiling

from omni_platforms.audit.compiled import never_compile
from omni_platforms.audit.here import Judge, here, observe


def watched(original: Callable[..., Any], judge: Judge) -> Callable[..., Any]:
    """Return `original` as a function that is observed on audited threads."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or not here.audits or here.busy:
            return original(*args, **kwargs)
        return observe(original, judge, args, kwargs)

    never_compile(call.__code__)
    call.__name__ = getattr(original, "__name__", "call")
    call.__qualname__ = getattr(original, "__qualname__", call.__name__)
    call.__doc__ = original.__doc__
    call.__wrapped__ = original  # type: ignore[attr-defined]
    return call
