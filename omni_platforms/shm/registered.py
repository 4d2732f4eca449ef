"""A segment as the worker writes it: flat bytes, registered with the device where it can be.

A device may refuse a registration as too large. Then the segment is registered
in pieces, and copies are cut where pieces meet: a copy never crosses two
registrations. When a piece is refused as well, those before it are undone, and
the segment is plain memory, written through pinned staging.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Hashable, Iterator

import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms.shm.allocator import round_up
from omni_platforms.shm.segment import Segment

logger = logging.getLogger(__name__)

SMALLEST_PIECE = 64 << 20
"""Pieces are halves, quarters and so on of a segment, but not smaller than so many bytes."""
_MOST_MADE = 256


class WritableSegment:
    """A segment, mapped in the worker. Methods are called under the arena's lock."""

    def __init__(self, segment: Segment, platform: OmniPlatform, device: torch.device) -> None:
        """Register the segment. Blocks for about 0.05 ms a megabyte, as its pages are there."""
        self.segment = segment
        self.bytes = torch.frombuffer(segment.mapping, dtype=torch.uint8)
        self.refusal = ""
        """Why it is not registered."""
        self._pieces: list[RegisteredHostMemory] = []
        self._step = segment.size
        """How many bytes each registration has, but for the last."""
        self._unregistering = False
        self._made: dict[Hashable, torch.Tensor] = {}
        """Tensors over ranges of it, for outputs that come into the same block again."""
        with _current(platform, device):
            _initialize(platform)
            self._register(platform)

    @property
    def is_registered(self) -> bool:
        """Whether the device copies to it without the host waiting."""
        return bool(self._pieces) and not self._unregistering

    def parts(self, offset: int, nbytes: int) -> list[torch.Tensor]:
        """Return a range as flat bytes, cut where two registrations meet."""
        end, step = offset + nbytes, self._step
        if offset // step == (end - 1) // step:
            return [self.bytes[offset:end]]
        cuts = range(round_up(offset + 1, step), end, step)
        edges = [offset, *cuts, end]
        return [self.bytes[a:b] for a, b in itertools.pairwise(edges)]

    def like(
        self, offset: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor | None:
        """Return a range as a contiguous tensor; `None` where two registrations meet in it."""
        key = (offset, dtype, shape)
        made = self._made.get(key)
        if made is None:
            parts = self.parts(offset, nbytes)
            if len(parts) > 1:
                return None
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            made = self._made[key] = parts[0].view(dtype).view(shape)
        return made

    def close(self) -> None:
        """Unregister the memory and close the descriptor. No copy may be in flight any more.

        Raises `HostRegistrationError` when the device refuses; what it kept stays registered,
        and the segment is plain memory: written through staging, if it is written again.
        """
        self._unregistering = True
        while self._pieces:
            self._pieces[-1].close()
            self._pieces.pop()
        self.segment.close()

    def _register(self, platform: OmniPlatform) -> None:
        size = self.segment.size
        step = size
        while True:
            try:
                pieces = [self.bytes[at : at + step] for at in range(0, size, step)]
                self._pieces = _register_pieces(platform, pieces)
                self._step = step
                return
            except HostRegistrationError as error:
                self.refusal = str(error)
            if step <= SMALLEST_PIECE:
                logger.warning("outputs are staged: %s", self.refusal)
                return
            step = max(SMALLEST_PIECE, round_up(step // 2))


def _register_pieces(
    platform: OmniPlatform, pieces: list[torch.Tensor]
) -> list[RegisteredHostMemory]:
    """Register all pieces, or none. An empty list: the platform has no registration."""
    with contextlib.ExitStack() as undo:
        registered = []
        for piece in pieces:
            made = platform.register_host_memory(piece)
            if made is None:
                return []
            undo.callback(made.close)
            if not _is_pinned(made.tensor):
                raise HostRegistrationError(
                    f"platform {platform.name!r} registered {piece.numel()} bytes, and torch does "
                    "not see them as pinned: copies to them would make the host wait."
                )
            registered.append(made)
        undo.pop_all()
    return registered


def _initialize(platform: OmniPlatform) -> None:
    """Let torch initialize the device: until then it calls no memory pinned.

    Source: torch 2.13, `isPinnedPtr` in ATen/Context.h. A pinned allocation does it for
    every device type; a device tensor does not for those outside torch.
    """
    with contextlib.suppress(RuntimeError):  # it pins nothing: registering may still work
        platform.pinned_empty((1,), torch.uint8)


def _is_pinned(tensor: torch.Tensor) -> bool:
    return tensor.is_pinned()


@contextlib.contextmanager
def _current(platform: OmniPlatform, device: torch.device) -> Iterator[None]:
    """Make `device` current: a registration may be bound to the current one."""
    before = platform.current_device()
    if before == device:
        yield
        return
    platform.set_device(device)
    try:
        yield
    finally:
        platform.set_device(before)
