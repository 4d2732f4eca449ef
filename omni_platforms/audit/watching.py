"""Functions and methods of Python that are watched on audited threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from omni_platforms.audit.compiled import never_compile
from omni_platforms.audit.here import Judge, here, observe
from omni_platforms.audit.kinds import Kind


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

    return _like(call, original)


def converting(original: Callable[..., Any], watching: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Tensor.to` as a function that hands what is no mere change of type to `watching`.

    Each step of a model changes types on the device many times, so this path is short.
    """
    dtype = torch.dtype

    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and args and type(args[0]) is dtype:
            return original(tensor, *args)
        return watching(tensor, *args, **kwargs)

    return _like(to, original)


def reading_for(original: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    """Return `original`, a method of tensors, as one whose reads of numbers are of that kind.

    The dispatcher sees the reads; this gives them their name, at little cost.
    """

    def call(tensor: Any) -> Any:
        if is_dynamo_compiling() or not here.audits or here.busy:
            return original(tensor)
        outer, here.reading = here.reading, kind
        try:
            return original(tensor)
        finally:
            here.reading = outer

    return _like(call, original)


def _like(call: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    never_compile(call.__code__)
    call.__name__ = getattr(original, "__name__", "call")
    call.__qualname__ = getattr(original, "__qualname__", call.__name__)
    call.__doc__ = original.__doc__
    call.__wrapped__ = original
    return call  # type: ignore[no-any-return]
