"""Waits that the program asks for: streams, events and devices, and flushing the allocator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from omni_platforms.audit.here import UNREAD, Call, Judge, Seen
from omni_platforms.audit.kinds import Kind
from omni_platforms.platform.interface import OmniPlatform

SOURCE = "call"
_FROM_EVENT = "synchronize_event"


def functions(platform: OmniPlatform) -> Iterator[tuple[Any, str, Judge]]:
    """Yield `(owner, name, judge)` of everything that waits by name on `platform`."""
    module: Any = torch.get_device_module(platform.device_type)
    for name, kind in (("Stream", Kind.STREAM_SYNCHRONIZE), ("Event", Kind.EVENT_SYNCHRONIZE)):
        judge = _always(kind)
        for each in _owners([getattr(torch, name), getattr(module, name, None)]):
            yield each, "synchronize", judge
    device, flush = _always(Kind.DEVICE_SYNCHRONIZE), _always(Kind.ALLOCATOR_FLUSH)
    for owner, prefix in ((torch._C, f"_{platform.device_type}_"), (torch._C, "_accelerator_")):
        for name in ("synchronize", "synchronizeDevice"):
            if hasattr(owner, prefix + name):
                yield owner, prefix + name, device
        if hasattr(owner, prefix + "emptyCache"):
            yield owner, prefix + "emptyCache", flush
    for place in (module, type(platform)):
        if hasattr(place, "synchronize"):
            yield place, "synchronize", device
        if hasattr(place, "empty_cache"):
            yield place, "empty_cache", flush
    yield type(platform), _FROM_EVENT, _always(Kind.EVENT_SYNCHRONIZE)


def _always(kind: Kind) -> Judge:
    def judge(call: Call) -> Seen:
        return Seen(kind, UNREAD, SOURCE)

    return judge


def _owners(classes: list[Any]) -> list[type]:
    """Return the classes, and those that they derive from, that define `synchronize`."""
    lines = [each.__mro__ for each in classes if isinstance(each, type)]
    found = {each for line in lines for each in line if "synchronize" in vars(each)}
    return sorted(found, key=lambda each: len(each.__mro__))
