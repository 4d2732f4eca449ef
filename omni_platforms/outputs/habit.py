"""What the callers of one executor do with small outputs: ask soon, or leave them for later."""

from __future__ import annotations

COMPANY = 32
"""So many small outputs share one copy, where nobody asks for them before."""

_PATIENCE = 64


class Habit:
    """Tells whether the copy of a small output may wait for others.

    It may once nobody has asked, for 64 outputs, for an output that had fewer
    than 32 newer ones. Asking for the newest output does not count: it has
    nothing to overlap with, so a plain blocking copy serves it best.

    Only a guess about speed, so it is kept without a lock.
    """

    def __init__(self) -> None:
        self._latest = -1
        self._disturbed = -1

    def may_wait(self, number: int) -> bool:
        """Note the submission of output `number`; return whether its copy may wait."""
        self._latest = number
        return number - self._disturbed > _PATIENCE

    def asked(self, number: int) -> None:
        """Note that somebody waits for output `number`."""
        if 0 < self._latest - number < COMPANY:
            self._disturbed = self._latest

    def disturb(self) -> None:
        """Note that somebody listens, or that outputs do not go together."""
        self._disturbed = self._latest
