"""Room in the arena: an output that finds none waits until the consumer lets go of others."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.errors import ArenaClosedError, ArenaFullError, SegmentRefusedError
from omni_platforms.shm import Arena, Packing


class Room:
    """Starts outputs on the main thread; other threads `wake` it when something has changed."""

    def __init__(self, arena: Arena, block: bool, timeout: float) -> None:
        self._arena = arena
        self._block = block
        self._timeout = timeout
        self._waking, self._wake = os.pipe()
        os.set_blocking(self._waking, False)
        os.set_blocking(self._wake, False)
        self.stop_at: float | None = None
        """When the worker is to have stopped, in `time.monotonic()`: it waits no longer."""

    def start(
        self, nest: Any, gate: torch.Event | None, wanted: Callable[[], bool], name: str = ""
    ) -> Packing | None:
        """Start the copies of output `name`, or return `None` when it is not `wanted` any more.

        Where the arena is full, blocks until there is room, if that was asked
        for. Raises `ArenaFullError` when there never will be, when the machine has no
        memory left, or after the timeout; and what `Arena.start` raises.
        """
        begun = time.monotonic()
        used = None
        while wanted():
            try:
                return self._arena.start(nest, None if gate is None else (gate,), name)
            except ArenaFullError as error:
                if not self._block or _stays_full(error):
                    raise
                if used is None:
                    # Asking takes in what came back since `start` had looked, and nothing
                    # would tell of that any more: look again before a wait, or before giving up.
                    used = self._arena.stats().used_bytes
                    continue
                if not used:
                    raise
                if not self._await_change(begun):
                    raise self._waited_in_vain(error, begun) from error
                used = None
        return None

    def start_now(self, nest: Any, name: str) -> Packing:
        """Start the copies of an output, without waiting for room. As `Arena.start`."""
        return self._arena.start(nest, None, name)

    def take_back(self, name: str) -> None:
        """Take the blocks of a packet back that its receiver could not read. Any thread."""
        with contextlib.suppress(ArenaClosedError):  # they went with the arena
            self._arena.discard_all_of(name)
        self.wake()

    def _await_change(self, begun: float) -> bool:
        """Block until leases have ended or somebody wakes us; return whether one did."""
        ends = [begun + self._timeout, *([] if self.stop_at is None else [self.stop_at])]
        left = min(ends) - time.monotonic()
        poller = select.poll()
        poller.register(self._arena.fileno(), select.POLLIN)
        poller.register(self._waking, select.POLLIN)
        ready = left > 0 and poller.poll(left * 1e3)
        with contextlib.suppress(BlockingIOError):
            os.read(self._waking, 1 << 12)
        return bool(ready)

    def _waited_in_vain(self, error: ArenaFullError, begun: float) -> ArenaFullError:
        waited = time.monotonic() - begun
        return ArenaFullError(f"no room for an output within {waited:.1f} s: {error}")

    def wake(self) -> None:
        """Let a waiting `start` look again. Does not block; any thread."""
        with contextlib.suppress(BlockingIOError):  # it is being woken already
            os.write(self._wake, b"\0")


def _stays_full(error: ArenaFullError) -> bool:
    """Whether no block that comes back would help: it is too large, or the machine is full."""
    return error.never_fits or isinstance(error.__cause__, SegmentRefusedError)
