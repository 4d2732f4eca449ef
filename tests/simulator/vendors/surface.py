"""The public names of a simulated module, and the arguments that its functions take."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

Arguments = list[list[object]]
"""Each argument's name, its kind, and whether it has a default."""


def public_names(name: str) -> list[str]:
    return [each for each in dir(getattr(torch, name, None)) if not each.startswith("_")]


def surface_of(name: str) -> dict[str, Any]:
    module = torch.get_device_module(name)
    # torch.xpu is torch's own; what it calls in torch._C is not.
    functions = calls_in_torch() if name == "xpu" else functions_of(module)
    return {
        "names": public_names(name),
        "functions": {each: arguments_of(function) for each, function in functions.items()},
        "methods": {each: arguments_of(method) for each, method in methods_of(module).items()},
    }


def arguments_of(function: Callable[..., Any]) -> Arguments:
    found = inspect.signature(function).parameters.values()
    return [[p.name, p.kind.name, p.default is not p.empty] for p in found if p.name != "self"]


def functions_of(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {n: v for n, v in public.items() if callable(v) and not isinstance(v, type)}


def calls_in_torch() -> dict[str, Callable[..., Any]]:
    calls = {name: value for name, value in vars(torch._C).items() if name.startswith("_xpu_")}
    return {n: v for n, v in calls.items() if not isinstance(v, type)}  # torch's dummies are types


def methods_of(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """The public methods of the stream and the event class that the simulator wrote."""
    found: dict[str, Callable[..., Any]] = {}
    for owner in ("Stream", "Event"):
        kind = getattr(module, owner)
        found[f"{owner}.__new__"] = kind.__new__
        for base in kind.__mro__:
            if base.__module__.startswith("omni_platforms"):
                for name, method in vars(base).items():
                    if inspect.isfunction(method) and not name.startswith("_") and name != "make":
                        found.setdefault(f"{owner}.{name}", method)
    return found
