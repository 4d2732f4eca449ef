"""Tells of waits of the host that the program did not ask for: `item()`, blocking copies."""

from __future__ import annotations

import warnings


class SyncDebug:
    """What such a wait does: nothing (mode 0), a warning (1) or an error before it (2)."""

    mode = 0

    def check(self, what: str) -> None:
        """Warn of the wait for `what`, or raise, as the mode says."""
        if self.mode == 2:
            raise RuntimeError(f"called a synchronizing operation ({what})")
        if self.mode == 1:
            warnings.warn(f"called a synchronizing operation ({what})", stacklevel=4)
