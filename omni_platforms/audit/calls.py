"""Waits seen where Python calls torch: copies between host and device, truth values, printing.

Copies are watched here and not at the dispatcher, where every copy on the
device would pay for it. A reference that was taken before the audit began
(`from torch import tensor`) is not seen; methods of tensors always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from omni_platforms.audit import values
from omni_platforms.audit.constancy import UNKNOWN
from omni_platforms.audit.here import UNREAD, Call, Judge, Seen, here
from omni_platforms.audit.kinds import Kind
from omni_platforms.audit.operators import lands_late

SOURCE = "call"


def on_device(tensor: Any) -> bool:
    """Whether this thread's audit takes `tensor` as the device's."""
    return here.world is not None and here.world.on_device(tensor)


def methods(device_type: str) -> Iterator[tuple[Any, str, Judge]]:
    """Yield `(owner, name, judge)` of everything to watch on a real or simulated device."""
    tensor = torch.Tensor
    yield from naming()
    yield tensor, "cpu", lambda call: _crossing(call, Kind.CPU)
    yield tensor, "tolist", lambda call: leaving(call, Kind.TOLIST)
    yield tensor, "numpy", lambda call: leaving(call, Kind.NUMPY)
    for name in {"to", "type", device_type}:
        if hasattr(tensor, name):
            yield tensor, name, lambda call: _crossing(call, Kind.TO_CPU)
    yield tensor, "copy_", copying
    yield tensor, "new_tensor", making
    for name in ("tensor", "as_tensor", "asarray"):
        yield torch, name, making


def _convert_may_cross(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether `.to` may change sides: not where only a type, or a place on its own side, is named.

    Conversions on the device are in every model's step, and cost a tenth of what
    a watched call does.
    """
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if target is None or isinstance(target, torch.dtype):
        return False
    if isinstance(target, torch.Tensor | torch.device):
        return _is_cpu(target) != tensor.is_cpu
    return not isinstance(target, str) or target.startswith("cpu") != tensor.is_cpu


def _is_cpu(target: torch.Tensor | torch.device) -> bool:
    return target.is_cpu if isinstance(target, torch.Tensor) else target.type == "cpu"


def _fill_may_cross(target: torch.Tensor, source: Any = None, *args: Any, **kwargs: Any) -> bool:
    return not isinstance(source, torch.Tensor) or source.is_cpu != target.is_cpu


MAY_WAIT: dict[str, Callable[..., bool]] = {"to": _convert_may_cross, "copy_": _fill_may_cross}
"""By the method's name: which calls are worth watching, on a real or simulated device."""


def naming() -> Iterator[tuple[Any, str, Judge]]:
    """Yield what only gives a name to reads that the dispatcher sees inside."""
    for name in ("__repr__", "__format__"):
        yield torch.Tensor, name, _printing


def _printing(call: Call) -> Seen | None:
    return Seen(Kind.PRINT, UNREAD, SOURCE) if call.waits else None


def leaving(call: Call, kind: Kind) -> Seen | None:
    """A whole tensor becomes numbers, lists or arrays of the host."""
    if call.result is NotImplemented or not on_device(call.args[0]):
        return None
    source = call.args[0]
    return (
        Seen(kind, values.of_data(call.result, source.nbytes), SOURCE) if source.numel() else None
    )


def _crossing(call: Call, kind: Kind) -> Seen | None:
    source, result = call.args[0], call.result
    if source is result or not isinstance(result, torch.Tensor) or not source.numel():
        return None
    return copied(source, result, non_blocking(call), kind)


def copied(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool, leaving: Kind
) -> Seen | None:
    """Judge a copy that made or filled `target`; `leaving` is its kind towards the host."""
    from_device = on_device(source)
    if from_device == on_device(target) or {source.device.type, target.device.type} & {"meta"}:
        return None
    if not from_device:
        return _uploaded(source, non_blocking)
    if not non_blocking:
        return Seen(leaving, values.of_host_tensor(target), SOURCE)
    if lands_late(target, source):
        return None
    value = values.Value(UNKNOWN, None, source.nbytes)
    return Seen(Kind.D2H_PAGEABLE_ASYNC, value, SOURCE)


def _uploaded(source: torch.Tensor, non_blocking: bool) -> Seen | None:
    pinned = source.is_pinned()
    if non_blocking:
        if pinned:
            return None
        return Seen(Kind.H2D_PAGEABLE_ASYNC, values.of_host_tensor(source), SOURCE)
    kind = Kind.H2D_BLOCKING if pinned else Kind.H2D_PAGEABLE
    return Seen(kind, values.of_host_tensor(source), SOURCE)


def copying(call: Call) -> Seen | None:
    """`target.copy_(source)`."""
    target, source = call.args[0], call.args[1] if call.args[1:] else call.kwargs.get("other")
    if call.result is NotImplemented or not isinstance(source, torch.Tensor) or not target.numel():
        return None
    return copied(source, target, non_blocking(call), Kind.D2H_BLOCKING)


def making(call: Call) -> Seen | None:
    """`torch.tensor` and its like: a device tensor of what the host has."""
    result = call.result
    at = 1 if call.args and call.args[0].__class__ is torch.Tensor and call.args[1:] else 0
    data = call.args[at] if call.args[at:] else call.kwargs.get("data", call.kwargs.get("obj"))
    if not isinstance(result, torch.Tensor) or not result.numel() or not on_device(result):
        return None
    if isinstance(data, torch.Tensor) and on_device(data):
        return None
    return Seen(Kind.TENSOR_FROM_HOST, values.of_data(data, result.nbytes), SOURCE)


def non_blocking(call: Call) -> bool:
    """Whether the call asked for `non_blocking`: by name, or as the first truth value."""
    if "non_blocking" in call.kwargs:
        return bool(call.kwargs["non_blocking"])
    return next((arg for arg in call.args[1:] if isinstance(arg, bool)), False)
