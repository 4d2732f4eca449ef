"""Numbers that Python reads from a tensor: the commonest wait, watched at the least cost.

The dispatcher's kernel (`operators.py`) sees every read, but the way through it
and back costs as much as the read itself when the processor has just waited.
Where Python asks for the number, the method is watched instead, and the
dispatcher passes over our kernel meanwhile. After a wait hardly anything is in
the processor's caches, so every function that is called here is dear.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from omni_platforms.audit.compiled import never_compile
from omni_platforms.audit.here import here
from omni_platforms.audit.kinds import Kind
from omni_platforms.audit.watching import in_place_of

SOURCE = "call"

_OUR_KEY = torch._C.DispatchKey.BackendSelect
_exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_FAILED = object()

Method = Callable[[Any], Any]


def methods() -> Iterator[tuple[str, Kind]]:
    """Yield the methods of tensors that read a number, and the kind of their waits."""
    for name in ("item", "__int__", "__float__", "__complex__", "__index__"):
        yield name, Kind.SCALAR_READ
    yield "__bool__", Kind.TRUTH_VALUE


class Directly:
    """Whether reads may pass over our kernel.

    With our key all kernels at it are passed over, those of `torch.empty` and its
    like too, so that a read may make no tensor by the dispatcher. torch's own reads
    (CPU, CUDA, ROCm) make none. A vendor's may; and where one of torch's fails that
    succeeds otherwise, that was the last one.
    """

    def __init__(self, device_type: str) -> None:
        self.works = _reads_as_torch_does(device_type)


def _reads_as_torch_does(device_type: str) -> bool:
    """Whether the device's kernel is one that torch generates: its dispatcher says from where."""
    kernels: str = torch._C._dispatch_dump("aten::_local_scalar_dense")
    key = f"{device_type.upper()}: "
    return any(line.startswith(key) and "/ATen/Register" in line for line in kernels.splitlines())


def reading(original: Method, kind: Kind, directly: Directly) -> Method:
    """Return `original`, a method that reads a number, as one whose waits are of that kind."""
    how, plain = (kind, SOURCE), torch.Tensor
    clock, caller = time.perf_counter, sys._getframe

    def by_the_kernel(tensor: Any) -> Any:
        outer, here.reading = here.reading, kind
        try:
            return original(tensor)
        finally:
            here.reading = outer

    def read(tensor: Any) -> Any:
        world = here.world
        if world is None or here.busy:
            return original(tensor)
        if (
            not directly.works
            or here.mark is not None
            # Nothing but torch's own code may run inside.
            or type(tensor) is not plain
            or _dispatch_modes()
            or _function_modes()
            or not world.is_there(tensor)
        ):
            return by_the_kernel(tensor)
        here.busy, here.told = True, 0
        _exclude(_OUR_KEY, True)
        try:
            start = clock()
            number = original(tensor)
            blocked = clock() - start
        except RuntimeError:
            number = _FAILED
        finally:
            _exclude(_OUR_KEY, False)
            here.busy = False
        if number is _FAILED:
            number = by_the_kernel(tensor)  # raises where the program itself is wrong
            directly.works = False
            return number
        for audit in here.audits:
            audit.record_number(caller(1), how, number, tensor, blocked)
        return number

    never_compile(by_the_kernel.__code__)
    return in_place_of(original, read)
