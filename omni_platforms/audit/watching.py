"""Functions and methods of Python that are watched on audited threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from omni_platforms.audit.compiled import never_compile
from omni_platforms.audit.here import Judge, here, observe


def watched(
    original: Callable[..., Any], judge: Judge, may_wait: Callable[..., bool] | None = None
) -> Callable[..., Any]:
    """Return `original` as a function that is observed on audited threads.

    `may_wait` takes the arguments and says which calls are worth it; without it all are.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or not here.audits or here.busy:
            return original(*args, **kwargs)
        if may_wait is not None and not may_wait(*args, **kwargs):
            return original(*args, **kwargs)
        return observe(original, judge, args, kwargs)

    return in_place_of(original, call)


def converting(original: Callable[..., Any], watching: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Tensor.to` as a function that hands what is no mere change of type to `watching`.

    Each step of a model changes types on the device many times, so this path is short.
    """
    dtype = torch.dtype

    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and args and type(args[0]) is dtype:
            return original(tensor, *args)
        return watching(tensor, *args, **kwargs)

    return in_place_of(original, to)


def in_place_of(original: Callable[..., Any], call: Any) -> Callable[..., Any]:
    """Return `call`, which torch never compiles, under the name of `original`."""
    never_compile(call.__code__)
    call.__name__ = getattr(original, "__name__", "call")
    call.__qualname__ = getattr(original, "__qualname__", call.__name__)
    call.__doc__ = original.__doc__
    call.__wrapped__ = original
    return call  # type: ignore[no-any-return]
