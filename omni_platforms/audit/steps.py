"""Finds the steps of a program that does not mark them: by a function, or by a module's forward."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from omni_platforms.audit.marks import step
from omni_platforms.audit.patches import Patches
from omni_platforms.audit.program import as_step
from omni_platforms.errors import AuditError


@contextmanager
def function_is_step(where: str) -> Iterator[None]:
    """Let each call of the function `package.module:name` be a step.

    `name` may be `Class.method`. The module is imported now. Raises `AuditError`
    where there is no such module or function.
    """
    module, _, name = where.partition(":")
    if not module or not name:
        raise AuditError(f"name the step's function as package.module:function, not {where!r}")
    try:
        owner: Any = importlib.import_module(module)
    except ImportError as error:
        raise AuditError(f"the module of the step's function {where!r}: {error}") from error
    *path, last = name.split(".")
    for each in path:
        owner = getattr(owner, each, None)
    function = vars(owner).get(last) if hasattr(owner, "__dict__") else None
    kind = type(function) if isinstance(function, staticmethod | classmethod) else None
    function = function if kind is None else function.__func__  # type: ignore[union-attr]
    if not callable(function) or isinstance(function, type):
        raise AuditError(f"{module} has no function {name!r} of its own to be the step")
    patches = Patches()
    stepping: Any = as_step(function)
    patches.replace(owner, last, stepping if kind is None else kind(stepping))
    try:
        yield
    finally:
        patches.close()


@contextmanager
def module_is_step(name: str) -> Iterator[None]:
    """Let a step begin with each forward of a module of the class `name`, until the next one.

    `name` is the class's own name or `package.module:Class`. A forward inside
    another one of the class begins nothing.
    """
    depth = 0

    def is_meant(module: Any) -> bool:
        kind = type(module)
        return name in {kind.__qualname__, f"{kind.__module__}:{kind.__qualname__}"}

    def before(module: Any, args: Any) -> None:
        nonlocal depth
        if is_meant(module):
            if not depth:
                step()
            depth += 1

    def after(module: Any, args: Any, output: Any) -> None:
        nonlocal depth
        depth -= is_meant(module)

    handles = [
        torch.nn.modules.module.register_module_forward_pre_hook(before),
        torch.nn.modules.module.register_module_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
