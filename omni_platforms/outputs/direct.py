"""Small outputs that are copied right in `submit`, because the device has nothing left to do.

In a loop that is bound by its launches the device is idle, or within microseconds of it, whenever
an output is handed over. For a caller who asks for outputs soon nothing beats a plain copy
then: everything else costs more than the copy itself (14 to 17 us on an H200 host).
Where the device still works, nobody waits for it: a try ends after ten microseconds, and the
next one comes only after many outputs.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from omni_platforms.outputs.batch import Batches
from omni_platforms.outputs.small import is_plain

_LEAVES = 2
"""A copy for each leaf: with more of them a copy on the side pays."""

_PATIENCE_S = 10e-6
"""How long a try waits for the device, in seconds: as long as a launch takes to get there."""

_FEWEST, _MOST = 128, 4096
"""After how many outputs it is tried again: twice as many after each failure."""


class Direct:
    """Says whether to copy an output in `submit`, and does it.

    The numbers are only a guess about speed, so they are kept without a lock.
    """

    def __init__(self, device: torch.device, batches: Batches) -> None:
        self.possible = True
        """Whether outputs are copied asynchronously at all."""
        self._device = device
        self._batches = batches
        self._asked = -3
        self._next = 0
        self._pause = _FEWEST

    def asked(self, number: int) -> None:
        """Note that somebody asks for output `number`."""
        if number > self._asked:
            self._asked = number

    def is_likely(self, number: int) -> bool:
        """Whether somebody will ask for output `number` at once, and the device may be idle."""
        return number - self._asked <= 2 and number >= self._next and self.possible

    def copies(self, number: int, leaves: list[Any]) -> list[torch.Tensor] | None:
        """Return host copies of `leaves`, or `None` where another way is better.

        Blocks for the copies, and at most ten microseconds for the device. The caller stands
        in the executor's capture gate, and the current device is the executor's.
        """
        if len(leaves) > _LEAVES or torch.is_inference_mode_enabled():
            return None
        for leaf in leaves:
            if not is_plain(leaf, self._device):
                return None
        if not self._device_is_idle():
            self._next = number + self._pause
            self._pause = min(2 * self._pause, _MOST)
            return None
        self._pause = max(self._pause - 1, _FEWEST)
        return [leaf.to("cpu") for leaf in leaves]

    def _device_is_idle(self) -> bool:
        """Whether the calling thread's current stream has nothing to do, or soon has."""
        stream = self._batches.current_stream()
        if stream is None:
            return False
        until = time.perf_counter() + _PATIENCE_S
        while not stream.query():
            if time.perf_counter() > until:
                return False
        return True
