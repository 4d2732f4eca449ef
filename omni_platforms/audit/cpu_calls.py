"""The calls of `calls.py` where the CPU is taken as a device: what would wait.

Nothing is copied on a CPU, so `.cpu()` returns the tensor itself. On an
accelerator it returns other memory, and so it does here, because later reads of
that memory cost nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from omni_platforms.audit.calls import copied, copying, leaving, making, naming, non_blocking
from omni_platforms.audit.frames import user_frame
from omni_platforms.audit.here import Call, Judge, Seen, here
from omni_platforms.audit.kinds import Kind
from omni_platforms.audit.worlds import CpuWorld, names_the_cpu

Emulate = Callable[[Callable[..., Any]], Callable[..., Any]]


def methods() -> Iterator[tuple[Any, str, Judge, Emulate | None]]:
    """Yield `(owner, name, judge, emulate)`; `emulate` makes the call do as on a device."""
    tensor = torch.Tensor
    for owner, name, judge in naming():
        yield owner, name, judge, None
    yield tensor, "tolist", lambda call: leaving(call, Kind.TOLIST), None
    yield tensor, "numpy", lambda call: leaving(call, Kind.NUMPY), None
    yield tensor, "copy_", copying, None
    yield tensor, "cpu", lambda call: _crossing(call, Kind.CPU), _cpu
    yield tensor, "to", lambda call: _crossing(call, Kind.TO_CPU), _to
    for name in ("tensor", "as_tensor", "asarray"):
        yield torch, name, making, _made
    for name in ("from_numpy", "frombuffer"):
        yield torch, name, lambda call: None, _made


def _world() -> CpuWorld:
    world = here.world
    assert isinstance(world, CpuWorld)  # these hooks are only put in for one
    return world


def _crossing(call: Call, kind: Kind) -> Seen | None:
    source, result = call.args[0], call.result
    if source is result or not isinstance(result, torch.Tensor) or not source.numel():
        return None
    late = non_blocking(call)
    if late and _world().on_device(source):
        return None  # torch gives such a copy pinned memory, and does not wait
    return copied(source, result, late, kind)


def _cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    def cpu(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        return _moved(tensor, result, to_host=True)

    return cpu


def _to(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        to_host = _target_is_host(args, kwargs, sys._getframe(3))
        return result if to_host is None else _moved(tensor, result, to_host=to_host)

    return to


def _moved(tensor: torch.Tensor, result: torch.Tensor, *, to_host: bool) -> torch.Tensor:
    """Return `result` as other memory, on the other side, if `tensor` is not there already."""
    world = _world()
    if to_host != world.on_device(tensor):
        return result
    moved = result.clone() if result is tensor else result
    (world.host.add if to_host else world.host.discard)(moved)
    return moved


def _target_is_host(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> bool | None:
    """Where `.to` was asked to go; `None` where it was not asked to go anywhere."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        return target in _world().host
    if not isinstance(target, str | torch.device) or torch.device(target).type != "cpu":
        return None
    return names_the_cpu(user_frame(frame))


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        to_host = kwargs.get("device") is None or names_the_cpu(user_frame(sys._getframe(3)))
        if isinstance(data, torch.Tensor):
            return _moved(data, result, to_host=to_host) if "device" in kwargs else result
        (_world().host.add if to_host else _world().host.discard)(result)
        return result

    return make
