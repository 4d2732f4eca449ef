"""Waits seen where torch dispatches operators, whoever calls them: Python or C++.

A kernel at the dispatch key `BackendSelect`, which every call of an operator
passes and where these operators have none of their own, looks and passes the
call on. Operators that do not wait are not touched and cost nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from omni_platforms.audit import values
from omni_platforms.audit.compiled import never_compile
from omni_platforms.audit.constancy import UNKNOWN
from omni_platforms.audit.frames import is_subscript, user_frame
from omni_platforms.audit.here import UNREAD, Call, Seen, here, observe
from omni_platforms.audit.kinds import READS, Kind

_KEY = "BackendSelect"
_BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
SOURCE = "operator"

_READ = "_local_scalar_dense"  # what every read of a number comes to
READ_OPERATOR = f"aten.{_READ}.default"

_WAIT: dict[str, Kind] = {
    "equal": Kind.TRUTH_VALUE,
    "nonzero": Kind.NONZERO,
    "nonzero.out": Kind.NONZERO,
    "masked_select": Kind.MASKED_SELECT,
    "masked_select.out": Kind.MASKED_SELECT,
    "_unique": Kind.UNIQUE,
    "_unique2": Kind.UNIQUE,
    "unique_dim": Kind.UNIQUE,
    "unique_consecutive": Kind.UNIQUE,
    "unique_dim_consecutive": Kind.UNIQUE,
    "repeat_interleave.Tensor": Kind.REPEAT_INTERLEAVE,
    "bincount": Kind.DATA_SHAPE,
}
_NUMBERS = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}

Kernel = Callable[..., Any]


class Operators:
    """The kernels of the whole process; dropped by `close`."""

    def __init__(self, *, copies: bool) -> None:
        library: Any = torch.library.Library  # torch gives it no types
        self._library = library("aten", "IMPL")
        self._register(_READ, _reading_a_number)
        for name, kind in _WAIT.items():
            self._register(name, partial(_reading, kind))
        if copies:
            self._register("copy_", _copying)

    def _register(self, name: str, make: Callable[[Any], Kernel]) -> None:
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        op = getattr(packet, overload or "default", None)
        if op is not None:  # an older torch may lack one
            self._library.impl(op, make(op), _KEY, with_keyset=True)

    def close(self) -> None:
        """Take the kernels out of the dispatcher."""
        self._library._destroy()


def _pass_on(op: Any) -> Kernel:
    """Return what calls the kernels below ours; it takes the dispatch keys first."""
    redispatch = op._handle.redispatch_boxed

    def pass_on(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return redispatch(keys & _BELOW, *args, **kwargs)

    return pass_on


def _reading_a_number(op: Any) -> Kernel:
    """The commonest wait, without what the others need: a third of their cost."""
    redispatch, clock, caller = op._handle.redispatch_boxed, time.perf_counter, sys._getframe
    profiled = _reading(Kind.SCALAR_READ, op)
    below: dict[int, Any] = {}  # finding it costs less than making it

    def kernel(keys: Any, tensor: torch.Tensor) -> Any:
        rest = below.get(keys.raw_repr())
        if rest is None:
            rest = below[keys.raw_repr()] = keys & _BELOW
        world = here.world
        if world is None or not world.on_device(tensor):
            return redispatch(rest, tensor)
        if here.busy:  # part of a call that is watched already
            here.waits += 1
            for audit in here.audits:
                audit.reads += 1
            return redispatch(rest, tensor)
        if here.mark is not None:
            for audit in here.audits:
                audit.reads += 1
            return profiled(keys, tensor)
        here.busy, here.told = True, 0
        try:
            start = clock()
            number = redispatch(rest, tensor)
            blocked = clock() - start
            for audit in here.audits:
                audit.record_number(caller(1), (here.reading, SOURCE), number, tensor, blocked)
            return number
        finally:
            here.busy = False

    never_compile(kernel.__code__)
    return kernel


def _reading(kind: Kind, op: Any) -> Kernel:
    name = str(op)
    pass_on = _pass_on(op)

    def judge(call: Call) -> Seen:
        if kind in READS and call.result is not NotImplemented:
            value = values.of_number(call.result, call.args[1].element_size())
            return Seen(here.reading if kind is Kind.SCALAR_READ else kind, value, SOURCE)
        masked = kind is Kind.NONZERO and is_subscript(user_frame(call.frame))
        return Seen(Kind.MASK_INDEX if masked else kind, UNREAD, SOURCE)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not here.audits or not _waits(kind, args, kwargs):
            return pass_on(keys, *args, **kwargs)
        _count(name)
        if here.busy:
            return _part(pass_on, (keys, *args), kwargs)
        return observe(pass_on, judge, (keys, *args), kwargs)

    never_compile(kernel.__code__)
    return kernel


def _count(name: str) -> None:
    for audit in here.audits:
        audit.operators[name] += 1


def _part(call: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call inside a watched one: one wait, or as many as are seen inside."""
    before = here.waits
    try:
        return call(*args, **kwargs)
    finally:
        here.waits = max(here.waits, before + 1)


def _waits(kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if kind is Kind.REPEAT_INTERLEAVE and (kwargs.get("output_size") or args[1:2] > (None,)):
        return False
    return here.world is not None and here.world.on_device(args[0])


def _copying(op: Any) -> Kernel:
    name, pass_on = str(op), _pass_on(op)

    def judge(call: Call) -> Seen:
        value = values.Value(UNKNOWN, None, call.args[1].nbytes)
        return Seen(Kind.OPERATOR_COPY, value, SOURCE)

    def kernel(keys: Any, target: torch.Tensor, source: Any, non_blocking: bool = False) -> Any:
        if type(source) in _NUMBERS:  # torch hands a number that it wrapped over as itself
            source = torch.tensor(source, dtype=_NUMBERS[type(source)])
        args = keys, target, source, non_blocking
        # A copy to another type makes a copy inside: the host waits in that one, and once.
        if not here.audits or here.copying or not _copy_waits(target, source, non_blocking):
            return pass_on(*args)
        _count(name)
        here.copying = True
        try:
            return _part(pass_on, args, {}) if here.busy else observe(pass_on, judge, args, {})
        finally:
            here.copying = False

    never_compile(kernel.__code__)
    return kernel


def _copy_waits(target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> bool:
    world = here.world
    if world is None or target.numel() == 0:
        return False
    from_device = world.on_device(source)
    if world.on_device(target) == from_device:
        return False
    if not non_blocking:
        return True
    return from_device and not lands_late(target, source)


def lands_late(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a non-blocking copy to the host tensor `target` really returns before it is done.

    The target must be pinned, and take the bytes without a temporary tensor.
    """
    direct = target.is_contiguous() or (
        target.dtype == source.dtype and target.stride() == source.stride()
    )
    return direct and target.is_pinned()
