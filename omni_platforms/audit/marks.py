"""What a program may say to the audit: here a step begins, this wait is meant, this is the output.

Outside an audit these cost a look-up. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from omni_platforms.audit.here import allowed_reasons, here

Function = TypeVar("Function", bound=Callable[..., Any])

_INACTIVE = contextlib.nullcontext()


def step(request: Any = None) -> AbstractContextManager[Any]:
    """Begin a step in every audit of the calling thread.

    The step lasts until the next one begins, or until the end of the `with`
    block that it is used in. `request` is any hashable name: a value is
    *hoistable* when it is the same at all steps of one request. Does not block.
    """
    audits = here.audits
    if not audits:
        return _INACTIVE
    if len(audits) == 1:
        return audits[0].step(request)
    stack = contextlib.ExitStack()
    for audit in audits:
        stack.push(audit.step(request))
    return stack


def output(value: Any, name: str = "output") -> None:
    """Note what the program computed, so that two runs can be compared.

    `value` is any nest of tensors, arrays and plain objects. It is copied to the
    host; this wait is not counted, and its time is part of no step.
    """
    for audit in here.audits:
        audit.note_output(value, name)


class allow_sync:
    """Waits inside are meant: they are listed with `reason` and not counted in the budget.

    A decorator (of functions and coroutine functions) or a context manager. It
    holds for the current task, or the current thread, and what they call; it
    nests, and ends with an exception too. Raises `ValueError` without a reason.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                "allow_sync needs a reason, such as allow_sync(reason='the last step')"
            )
        self.reason = reason

    def __enter__(self) -> allow_sync:
        allowed_reasons.set((*allowed_reasons.get(), self.reason))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        allowed_reasons.set(allowed_reasons.get()[:-1])

    def __call__(self, function: Function) -> Function:
        """Allow the waits of every call of `function`. Raises `TypeError` for a generator."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"allow_sync cannot decorate the generator {function.__qualname__}: whoever "
                "iterates over it would be allowed to wait too. Use `with allow_sync(...)` in it."
            )
        decorated = self._coroutine if inspect.iscoroutinefunction(function) else self._plain
        found: Function = decorated(function)
        return found

    def _plain(self, function: Any) -> Any:
        @functools.wraps(function)
        def allowed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return allowed

    def _coroutine(self, function: Any) -> Any:
        @functools.wraps(function)
        async def allowed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        return allowed
