"""The faults that are on now, and the waits that never return because of them."""

from __future__ import annotations

import threading
from typing import NoReturn

from omni_platforms.errors import SimulatedHangError
from omni_platforms.simulator.faults import NO_FAULTS, Faults


class FaultState:
    """Shared by all parts of one simulated accelerator. Any thread may call any method."""

    def __init__(self) -> None:
        self.now = NO_FAULTS
        self._changed = threading.Event()

    def switch(self, faults: Faults) -> None:
        """Let `faults` be the ones that are on; waits that hang raise at once."""
        self.now = faults
        changed, self._changed = self._changed, threading.Event()
        changed.set()

    def hang(self, what: str) -> NoReturn:
        """Block as a wait for `what` would that has no end, then raise `SimulatedHangError`.

        Blocks `hang_seconds`, or until the faults are switched. The caller must
        not hold the simulator's lock, so that other threads go on.
        """
        seconds = self.now.hang_seconds
        self._changed.wait(seconds)
        raise SimulatedHangError(
            f"the wait for {what} would never return on this device. It was given up after "
            f"{seconds} s (Faults.hang_seconds), or because the faults were switched. Poll with "
            "a deadline, or wait for the stream instead."
        )
