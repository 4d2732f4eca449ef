"""Puts the hooks of the process in with the first audit and takes them out with the last."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch

from omni_platforms.audit import calls, cpu_calls, reading, synchronizing
from omni_platforms.audit.compiled import Uncompiled
from omni_platforms.audit.operators import Operators
from omni_platforms.audit.patches import Patches
from omni_platforms.audit.vendor import VendorWarnings
from omni_platforms.audit.watching import converting, watched
from omni_platforms.errors import AuditError
from omni_platforms.platform.interface import OmniPlatform


@dataclass(frozen=True)
class Mode:
    """What an audit looks at. Audits at one time share the hooks, so they share this."""

    platform: OmniPlatform = field(compare=False)
    cpu_as_device: bool
    full: bool

    def alike(self, other: Mode) -> bool:
        """Whether audits of both can share their hooks."""
        return self == other and type(self.platform) is type(other.platform)

    def __str__(self) -> str:
        detail = "full" if self.full else "counts"
        return f"platform {self.platform.name!r}, detail {detail!r}" + (
            ", the CPU as device" if self.cpu_as_device else ""
        )


class _Hooks:
    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.users = 0
        self._patches = Patches()
        self.vendor = None
        self._uncompiled = Uncompiled() if mode.cpu_as_device else None
        self._operators = Operators(copies=mode.full and not mode.cpu_as_device)
        try:
            self._watch()
            if mode.full and not mode.cpu_as_device:
                self.vendor = VendorWarnings.of(mode.platform)
        except BaseException:
            self.close()
            raise

    def _watch(self) -> None:
        if self.mode.cpu_as_device:
            for owner, name, judge, emulate in cpu_calls.methods():
                original = getattr(owner, name)
                emulated = original if emulate is None else emulate(original)
                self._patches.replace(owner, name, watched(emulated, judge))
        else:
            for owner, name, judge in calls.methods(self.mode.platform.device_type):
                original = getattr(owner, name)
                watching = watched(original, judge, calls.MAY_WAIT.get(name))
                if name == "to":
                    watching = converting(original, watching)
                self._patches.replace(owner, name, watching)
        directly = reading.Directly(self.mode.platform.device_type)
        for name, kind in reading.methods():
            original = getattr(torch.Tensor, name)
            watching = reading.reading(original, kind, directly)
            self._patches.replace(torch.Tensor, name, watching)
        for owner, name, judge in synchronizing.functions(self.mode.platform):
            self._patches.replace(owner, name, watched(getattr(owner, name), judge))

    def close(self) -> None:
        self._patches.close()
        self._operators.close()
        if self.vendor is not None:
            self.vendor.close()
        if self._uncompiled is not None:
            self._uncompiled.close()


_hooks: _Hooks | None = None
_lock = threading.Lock()


def put_in(mode: Mode) -> VendorWarnings | None:
    """Make this process's calls report, and return what listens to the vendor, if anything does.

    Raises `AuditError` beside an audit of another mode.
    """
    global _hooks
    with _lock:
        if _hooks is None:
            _hooks = _Hooks(mode)
        elif not _hooks.mode.alike(mode):
            raise AuditError(
                f"another audit runs in this process ({_hooks.mode}), and audits at one time share "
                f"their hooks: begin this one ({mode}) when it is over, or make them alike"
            )
        _hooks.users += 1
        return _hooks.vendor


def take_out() -> None:
    """Undo one `put_in`; the last one restores everything."""
    global _hooks
    with _lock:
        assert _hooks is not None
        _hooks.users -= 1
        if not _hooks.users:
            _hooks.close()
            _hooks = None
