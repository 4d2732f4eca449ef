"""The vendor's sync-debug mode as a second pair of eyes: it also sees inside the vendor's kernels.

Its warnings come through Python's `warnings`. They are taken where they would be
shown, by a hook that `warnings.catch_warnings` does not take away, and they are
kept out of what the program prints. The filter that lets them through can be
lost inside somebody's `catch_warnings`; it is put back at each step.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from omni_platforms.audit.here import UNREAD, Seen, here
from omni_platforms.audit.kinds import Kind
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

SOURCE = "sync-debug"
_WORDS = "called a synchronizing"

Saw = Callable[[FrameType, Seen], None]


class VendorWarnings:
    """Listens on the thread that makes it, until `close`."""

    @classmethod
    def of(cls, platform: OmniPlatform, saw: Saw) -> VendorWarnings | None:
        """Listen to `platform`; `None` where it has no such mode."""
        if Capability.SYNC_DEBUG not in platform.capabilities:
            return None
        mode = platform.sync_debug("warn")
        return None if mode is None else cls(mode, saw)

    def __init__(self, mode: AbstractContextManager[None], saw: Saw) -> None:
        self._mode = mode
        self._saw = saw
        self._thread = threading.get_ident()
        self._show: Any = warnings._showwarnmsg  # type: ignore[attr-defined]
        self._mode.__enter__()
        warnings._showwarnmsg = self._hook  # type: ignore[attr-defined]
        self.assert_hook()

    def assert_hook(self) -> None:
        """Put the filter in front again, where somebody has put theirs, or taken it away."""
        first = warnings.filters[0] if warnings.filters else None
        if first is None or first[0] != "always" or first[1] is None or not first[1].match(_WORDS):
            warnings.filterwarnings("always", message=_WORDS)

    def _hook(self, message: Any) -> None:
        if not str(message.message).startswith(_WORDS):
            self._show(message)
        elif threading.get_ident() != self._thread:
            return
        elif here.busy:
            here.told += 1
        else:
            frame = sys._getframe(1)
            self._saw(frame, Seen(Kind.VENDOR, UNREAD, SOURCE))

    def close(self) -> None:
        """Stop listening; the vendor's mode and Python's filters are what they were."""
        self._mode.__exit__(None, None, None)
        if warnings._showwarnmsg == self._hook:  # type: ignore[attr-defined]
            warnings._showwarnmsg = self._show  # type: ignore[attr-defined]
        mine = [each for each in warnings.filters if each[1] is not None and each[1].match(_WORDS)]
        for each in mine:
            if each[0] == "always" and each[1] is not None and each[1].pattern == _WORDS:
                warnings.filters.remove(each)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]
