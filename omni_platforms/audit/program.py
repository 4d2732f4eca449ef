"""Runs a script or a module in this process, as Python itself would."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_platforms.audit.marks import step
from omni_platforms.errors import AuditError

_DECORATOR = "__omni_audit_step__"


@dataclass(frozen=True)
class Program:
    """What to run: a script's path or a module's name, with its arguments."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Let `sys.argv` and `sys.path` be the program's. Raises `AuditError` without one."""
        path = Path(self.target)
        if not self.is_module and not path.is_file():
            raise AuditError(f"there is no script {self.target!r}: give its path, or -m MODULE")
        folder = os.getcwd() if self.is_module else str(path.resolve().parent)
        argv, where = sys.argv, sys.path
        sys.argv = [self.target, *self.arguments]
        sys.path = [folder, *where]
        try:
            yield
        finally:
            sys.argv, sys.path = argv, where

    def run(self, step_function: str | None = None) -> None:
        """Run it, with the function of that name in it as a step. Raises what it raises.

        Call it inside `prepared`.
        """
        if step_function is not None:
            self._run_marked(step_function)
        elif self.is_module:
            runpy.run_module(self.target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(self.target, run_name="__main__")

    def _run_marked(self, step_function: str) -> None:
        path, package = self._source()
        source = Path(path).read_bytes()
        tree = ast.parse(source, path)
        _decorate(tree, step_function, path)
        module = types.ModuleType("__main__")
        vars(module).update({"__file__": path, "__package__": package, _DECORATOR: as_step})
        outer = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(compile(tree, path, "exec"), vars(module))
        finally:
            sys.modules["__main__"] = outer

    def _source(self) -> tuple[str, str | None]:
        if not self.is_module:
            return self.target, None
        for name in (f"{self.target}.__main__", self.target):
            try:
                spec = importlib.util.find_spec(name)
            except ImportError:
                continue
            if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
                return spec.origin, spec.parent
        raise AuditError(f"there is no module {self.target!r} with Python source to run")


def as_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with each outermost call of it as a step."""
    depth = [0]

    @functools.wraps(function)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        if depth[0]:
            return function(*args, **kwargs)
        depth[0] += 1
        try:
            with step():
                return function(*args, **kwargs)
        finally:
            depth[0] -= 1

    @functools.wraps(function)
    async def stepping_async(*args: Any, **kwargs: Any) -> Any:
        with step():
            return await function(*args, **kwargs)

    return stepping_async if inspect.iscoroutinefunction(function) else stepping


def _decorate(tree: ast.Module, qualified_name: str, path: str) -> None:
    """Give the function of that name in `tree` our decorator, outside its own."""
    found: Any = tree
    for name in qualified_name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inside = [each for each in found.body if isinstance(each, kinds) and each.name == name]
        if not inside:
            raise AuditError(f"{path} defines no function {qualified_name!r} at its top level")
        found = inside[-1]
    if isinstance(found, ast.ClassDef):
        raise AuditError(f"{qualified_name!r} in {path} is a class: name a function or a method")
    mark = ast.copy_location(ast.Name(_DECORATOR, ast.Load()), found)
    # Outside a staticmethod or classmethod our decorator would get no function.
    outside = [
        ast.unparse(each) in {"staticmethod", "classmethod"} for each in found.decorator_list
    ]
    found.decorator_list.insert(1 if outside[:1] == [True] else 0, mark)
