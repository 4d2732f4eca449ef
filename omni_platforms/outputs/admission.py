"""Letting an output in: counted against the limits, or as the caller chose when it is full."""

from __future__ import annotations

from typing import Any

from omni_platforms.errors import ExecutorClosedError
from omni_platforms.outputs.bounds import Bounds, WhenFull
from omni_platforms.outputs.host_copy import nbytes_of
from omni_platforms.outputs.pending import PendingOutput
from omni_platforms.outputs.stats import Counters
from omni_platforms.outputs.waiter import Waiter
from omni_platforms.platform.interface import OmniPlatform

_REMEMBERED = 64


class Admission:
    """Counts the outputs of one executor in. Any thread may call it."""

    def __init__(
        self,
        platform: OmniPlatform,
        bounds: Bounds,
        waiter: Waiter,
        counters: Counters,
        when_full: WhenFull,
    ) -> None:
        self._platform = platform
        self._bounds = bounds
        self._waiter = waiter
        self._counters = counters
        self._when_full = when_full
        self._rounded: dict[int, int] = {}

    def admit(self, pending: PendingOutput, leaves: list[Any]) -> bool:
        """Count the output in; return whether it was (`False` means: degrade).

        Blocks while there is no room, where the caller chose so. Raises `ExecutorFullError`
        where it chose that, and `ExecutorClosedError` when the executor was closed meanwhile.
        """
        nbytes = charge = 0
        for leaf in leaves:
            size = nbytes_of(leaf)
            nbytes += size
            charge += self._rounded.get(size) or self._round(size)
        pending.nbytes, pending.charge = nbytes, charge
        return self._bounds.try_enter(charge) or self._when_there_is_no_room(pending)

    def charge_anew(self, pending: PendingOutput) -> None:
        """Count the bytes that `on_device` left to copy instead of those that it was given."""
        charge = sum(self._round(nbytes_of(value)) for value in pending.values)
        self._bounds.change(charge - pending.charge)
        pending.charge = charge

    def _round(self, nbytes: int) -> int:
        """Return what a pinned allocation takes; sizes repeat, so a few are remembered."""
        taken = self._platform.pinned_allocation_bytes(nbytes)
        if len(self._rounded) < _REMEMBERED:
            self._rounded[nbytes] = taken
        return taken

    def _when_there_is_no_room(self, pending: PendingOutput) -> bool:
        charge = pending.charge
        if self._when_full == "raise":
            raise self._bounds.full_error(charge)
        if self._when_full == "degrade" or self._waiter.resolving_here():
            # The resolving thread would wait for itself.
            pending.charge = 0
            self._bounds.enter_uncounted()
            self._counters.add("degraded")
            return False
        self._waiter.hurry_all()
        if not self._bounds.enter(charge, lambda: not self._waiter.closing):
            raise ExecutorClosedError(
                "the executor was closed while this output waited for room"
            ) from self._waiter.cause
        return True
