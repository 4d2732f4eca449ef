"""A copy that converts makes another copy inside, as CUDA's does: the host waits once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omni_platforms.audit import SyncAudit, operators
from omni_platforms.audit.here import _Here, observe
from omni_platforms.audit.worlds import DeviceWorld
from omni_platforms.platform.cpu import CpuPlatform

KEYS = torch._C._dispatch_keys(torch.ones(1))


class ConvertingCopy:
    """`aten::copy_` of a device: converts by way of a copy of the same type."""

    def __init__(self) -> None:
        self._handle = self
        self.kernel = operators._copying(self)

    def __str__(self) -> str:
        return "aten.copy_.default"

    def redispatch_boxed(self, keys: Any, target: Any, source: Any, non_blocking: bool) -> Any:
        if target.dtype != source.dtype:
            self.kernel(KEYS, torch.empty_like(target, dtype=source.dtype), source, non_blocking)
        return target


def waits_of(inside_a_call: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, int]]:
    """Return the waits and the operators of one such copy; what has a gradient is on the device."""

    def init(self: DeviceWorld, device_type: str) -> None:
        self.is_there = lambda tensor: bool(tensor.requires_grad)

    monkeypatch.setattr(DeviceWorld, "__init__", init)
    source, target = torch.ones(2, requires_grad=True), torch.empty(2, dtype=torch.float16)
    copy = ConvertingCopy()

    def call() -> None:
        copy.kernel(KEYS, target, source)

    with SyncAudit(CpuPlatform(), cpu_as_device=False) as audit:
        if inside_a_call:
            waits = []
            observe(call, lambda call: waits.append(call.waits), (), {})
            return waits[0], audit.report().operators
        call()
    return audit.report().waits, audit.report().operators


@pytest.mark.parametrize("inside_a_call", [False, True])
def test_a_copy_that_converts_waits_once(
    inside_a_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waits_of(inside_a_call, monkeypatch) == (1, {"aten.copy_.default": 1})


def test_this_would_show_two(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(_Here, "copying", forgetful)
    assert waits_of(True, monkeypatch)[1] == {"aten.copy_.default": 2}
