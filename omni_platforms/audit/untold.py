"""The waits of one call from Python that the vendor's sync-debug mode has yet to tell of.

torch keeps what C++ code warns of until the call from Python returns. So the
vendor tells of an operator's waits after the operator, and of all operators of
one call together. Until then Python's frame stands at the instruction of the call.
"""

from __future__ import annotations

from collections import deque
from types import FrameType

from omni_platforms.audit.frames import user_frame
from omni_platforms.audit.sites import Site

_KEPT = 256
"""Waits that are never told of, of one instruction in a loop, are forgotten beyond these."""


class Untold:
    """The waits found so far in the present call, one entry for each."""

    def __init__(self) -> None:
        self._call: tuple[int, int] | None = None
        self._sites: deque[Site] = deque(maxlen=_KEPT)

    def expect(self, frame: FrameType, site: Site, waits: int) -> None:
        """Note that the call at or above `frame` waited as often, at `site`."""
        call = _call(frame)
        if call != self._call:
            self.forget()
            self._call = call
        self._sites.extend([site] * waits)

    def explain(self, frame: FrameType) -> Site | None:
        """Return where a wait was found that the vendor tells of now; `None` if none was."""
        if not self._sites or _call(frame) != self._call:
            return None
        return self._sites.popleft()

    def forget(self) -> None:
        """Expect no more: another call, or another step, has begun."""
        self._call = None
        self._sites.clear()


def _call(frame: FrameType) -> tuple[int, int]:
    mine = user_frame(frame)
    return id(mine), mine.f_lasti
