"""Outputs as nests: take the leaves out at submit, put host copies back in later.

A nest is any mix of dict, list, tuple, NamedTuple, dataclass and their
subclasses. Leaves are torch tensors and NumPy arrays; every other object is
kept by reference. Containers are copied when the leaves are taken out, so what
the caller does to them afterwards changes nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from omni_platforms.errors import UnsupportedOutputError

Rebuild = Callable[[Sequence[Any]], Any]
"""Makes the nest again from one value for each leaf, in the order of the leaves."""


def flatten(nest: Any) -> tuple[list[Any], Rebuild]:
    """Return the leaves of `nest` and a function that rebuilds it from new ones.

    A leaf object that occurs twice is listed once and comes back as one
    object. `rebuild` may be called once: it completes containers that were
    copied here. Raises `UnsupportedOutputError` for a nest that contains itself.
    """
    if isinstance(nest, torch.Tensor):
        return [nest], _only
    leaves: list[Any] = []
    try:
        rebuild = _take(nest, leaves, {})
    except RecursionError as error:
        raise UnsupportedOutputError(
            "the output contains itself, or is nested deeper than Python's recursion limit "
            f"({sys.getrecursionlimit()}): hand over a flatter structure"
        ) from error
    return leaves, rebuild


def is_leaf(value: Any) -> bool:
    """Whether `value` has bytes to copy: a torch tensor or a NumPy array."""
    return isinstance(value, torch.Tensor) or is_array(value)


def is_array(value: Any) -> bool:
    """Whether `value` is a NumPy array; NumPy is never imported for the question."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _only(values: Sequence[Any]) -> Any:
    return values[0]


def _take(value: Any, leaves: list[Any], seen: dict[int, int]) -> Rebuild:
    """Append the leaves below `value` to `leaves`; return how to rebuild `value`."""
    if is_leaf(value):
        index = seen.setdefault(id(value), len(leaves))
        if index == len(leaves):
            leaves.append(value)
        return lambda values: values[index]
    if isinstance(value, dict):
        return _take_dict(value, leaves, seen)
    if isinstance(value, (list, tuple)):
        return _take_sequence(value, leaves, seen)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _take_dataclass(value, leaves, seen)
    return lambda values: value


def _take_dict(value: dict[Any, Any], leaves: list[Any], seen: dict[int, int]) -> Rebuild:
    parts = [(key, _take(item, leaves, seen)) for key, item in value.items()]
    if type(value) is dict:
        return lambda values: {key: part(values) for key, part in parts}
    # A subclass (OrderedDict, defaultdict, a library's output class) is copied
    # by its own rules, then emptied of device tensors until the copies are there.
    shell = copy.copy(value)
    for key, _ in parts:
        shell[key] = None

    def rebuild(values: Sequence[Any]) -> Any:
        for key, part in parts:
            shell[key] = part(values)
        return shell

    return rebuild


def _take_sequence(value: Any, leaves: list[Any], seen: dict[int, int]) -> Rebuild:
    parts = [_take(item, leaves, seen) for item in value]
    kind = type(value)
    if kind is list:
        return lambda values: [part(values) for part in parts]
    if kind is tuple:
        return lambda values: tuple(part(values) for part in parts)
    if isinstance(value, list):
        shell = copy.copy(value)
        shell[:] = [None] * len(parts)

        def rebuild(values: Sequence[Any]) -> Any:
            shell[:] = [part(values) for part in parts]
            return shell

        return rebuild
    # NamedTuples and other tuple subclasses, whatever their constructor takes.
    return lambda values: tuple.__new__(kind, [part(values) for part in parts])


def _take_dataclass(value: Any, leaves: list[Any], seen: dict[int, int]) -> Rebuild:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    parts = [(name, _take(getattr(value, name), leaves, seen)) for name in names]
    shell = copy.copy(value)  # without __init__, which may have effects or other arguments
    for name in names:
        object.__setattr__(shell, name, None)

    def rebuild(values: Sequence[Any]) -> Any:
        for name, part in parts:
            object.__setattr__(shell, name, part(values))
        return shell

    return rebuild
