"""The vendor's sync-debug mode as a second pair of eyes: it also sees inside the vendor's kernels.

Its warnings come through Python's `warnings`. They are taken where they would be
shown, by a hook that `warnings.catch_warnings` does not take away, and they are
kept out of what the program prints. The filter that lets them through can be
lost inside somebody's `catch_warnings`; it is put back at each step.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager
from typing import Any

from omni_platforms.audit.here import UNREAD, Seen, here
from omni_platforms.audit.kinds import Kind
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

SOURCE = "sync-debug"
_WORDS = "called a synchronizing"


class VendorWarnings:
    """Listens for the audits of all threads, until `close`."""

    @classmethod
    def of(cls, platform: OmniPlatform) -> VendorWarnings | None:
        """Listen to `platform`; `None` where it has no such mode."""
        if Capability.SYNC_DEBUG not in platform.capabilities:
            return None
        mode = platform.sync_debug("warn")
        return None if mode is None else cls(mode)

    def __init__(self, mode: AbstractContextManager[None]) -> None:
        self._mode = mode
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the vendor may say that its mode is a prototype
            self._mode.__enter__()
        self._show: Any = warnings._showwarnmsg  # type: ignore[attr-defined]
        warnings._showwarnmsg = self._hook  # type: ignore[attr-defined]
        self.assert_hook()

    def assert_hook(self) -> None:
        """Put the filter in front again, where somebody has put theirs, or taken it away."""
        first = warnings.filters[0] if warnings.filters else None
        if first is None or not _is_ours(first):
            warnings.filterwarnings("always", message=_WORDS)

    def _hook(self, message: Any) -> None:
        if not str(message.message).startswith(_WORDS):
            self._show(message)
        elif here.busy:
            here.told += 1
        else:
            for audit in here.audits:  # none on a thread that is not audited
                audit.vendor_saw(sys._getframe(1), Seen(Kind.VENDOR, UNREAD, SOURCE))

    def close(self) -> None:
        """Stop listening; the vendor's mode and Python's filters are what they were."""
        self._mode.__exit__(None, None, None)
        if warnings._showwarnmsg == self._hook:  # type: ignore[attr-defined]
            warnings._showwarnmsg = self._show  # type: ignore[attr-defined]
        for each in [each for each in warnings.filters if _is_ours(each)]:
            warnings.filters.remove(each)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def _is_ours(entry: Any) -> bool:
    action, pattern = entry[:2]
    return action == "always" and getattr(pattern, "pattern", None) == _WORDS
