"""The segments of an arena: made, registered and announced to the consumer, up to a cap."""

from __future__ import annotations

import contextlib
import os

import torch

from omni_platforms.errors import ArenaClosedError, ArenaFullError
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import named
from omni_platforms.shm.allocator import ALIGNMENT, Allocator, round_up
from omni_platforms.shm.memory_left import memory_left
from omni_platforms.shm.passing import Channel, Sender
from omni_platforms.shm.registered import WritableSegment
from omni_platforms.shm.segment import Segment

_SHARE = 4  # the default cap is a quarter of what is left


class Segments:
    """Grows an allocator. Methods are called under the arena's lock."""

    def __init__(
        self, platform: OmniPlatform, device: torch.device, cap: int | None, segment_bytes: int
    ) -> None:
        if segment_bytes <= 0 or (cap is not None and cap < ALIGNMENT):
            raise ValueError(
                f"an arena needs a positive segment_bytes, not {segment_bytes}, and a cap of at "
                f"least {ALIGNMENT} bytes, not {cap}"
            )
        self.allocator = Allocator()
        self.all: list[WritableSegment] = []
        self.cap, self._cap_origin = _cap(cap)
        self.node = platform.numa_node(device.index or 0)
        self._platform = platform
        self._device = device
        self._step = min(round_up(segment_bytes), max(self.cap, ALIGNMENT))
        self._sender: Sender | None = None
        if not hasattr(os, "memfd_create"):
            named.sweep()

    def grow(self, nbytes: int) -> None:
        """Add a segment with room for a block of `nbytes`.

        Blocks for about 0.4 ms a megabyte. Raises `ArenaFullError` when the cap
        forbids it, `SegmentRefusedError` when the system does, and `ArenaClosedError`
        when the consumer is gone.
        """
        room = self.cap - self.allocator.total_bytes
        needed = round_up(nbytes)
        if needed > room:
            raise self.full_error(nbytes, f"the cap of {self.cap} bytes ({self._cap_origin})")
        segment = Segment.create(min(room, max(needed, self._step)), self.node)
        with contextlib.ExitStack() as undo:
            undo.callback(segment.close)
            made = WritableSegment(segment, self._platform, self._device)
            undo.callback(made.close)
            self._announce(segment)
            undo.pop_all()
        self.node = segment.node
        self.all.append(made)
        self.allocator.add_segment(segment.size)

    def full_error(self, nbytes: int, limit: str) -> ArenaFullError:
        """Return the error for a block of `nbytes` that `limit` does not allow."""
        allocator = self.allocator
        never = " It is larger than the whole arena may be." if nbytes > self.cap else ""
        error = ArenaFullError(
            f"there is no room for a block of {nbytes} bytes: {allocator.used_bytes} of "
            f"{allocator.total_bytes} bytes are in use, the largest free range has "
            f"{allocator.largest_free}, and the arena may not grow. The limit: {limit}.{never} Let "
            "go of results, or raise the limit."
        )
        error.never_fits = nbytes > self.cap
        return error

    def connect(self, channel: Channel, return_end: int) -> None:
        """Send the return pipe's end and all segments to the consumer."""
        if self._sender is not None:
            raise ValueError("this arena has a consumer already: make one arena for each")
        sender = Sender(channel)
        try:
            sender.send([return_end, *(made.segment.descriptor for made in self.all)])
        except BaseException:
            sender.close()
            raise
        self._sender = sender

    def _announce(self, segment: Segment) -> None:
        if self._sender is None:
            return
        try:
            self._sender.send([segment.descriptor])
        except ConnectionError as error:
            raise ArenaClosedError(
                "the consumer of this arena is gone: nobody can receive an output of it any more"
            ) from error

    def close(self) -> None:
        """Unregister and close all segments. Raises `HostRegistrationError`."""
        while self.all:
            self.all[-1].close()
            self.all.pop()
        self.allocator = Allocator()
        if self._sender is not None:
            self._sender.close()


def default_cap() -> int:
    """Return the cap of an arena that nobody gave one: bytes. Does not block."""
    return memory_left().nbytes // _SHARE // ALIGNMENT * ALIGNMENT


def _cap(cap: int | None) -> tuple[int, str]:
    if cap is not None:
        return cap // ALIGNMENT * ALIGNMENT, "as it was asked for"
    return default_cap(), f"a quarter of {memory_left().limit}"
