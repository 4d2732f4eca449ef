"""Where the bytes of one leaf go: a range of a segment, or of a packet's inline bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from omni_platforms.shm.registered import WritableSegment


class Place:
    """A range of memory, of which tensors are made only as they are wanted.

    Making a tensor takes a microsecond, and twenty behind a forward that has had the processor's
    caches for itself: outputs that come into the same block again find theirs made.
    """

    __slots__ = ("_memory", "_nbytes", "_offset")

    def __init__(self, memory: WritableSegment | torch.Tensor, offset: int, nbytes: int) -> None:
        """Take `nbytes` from `offset` of a segment, or of flat bytes in ordinary memory."""
        self._memory, self._offset, self._nbytes = memory, offset, nbytes

    @property
    def is_registered(self) -> bool:
        """Whether the device can write it itself, without the host waiting."""
        return isinstance(self._memory, WritableSegment) and self._memory.is_registered

    def parts(self) -> Sequence[torch.Tensor]:
        """Return it as flat bytes, in parts that a copy must not cross."""
        if isinstance(self._memory, WritableSegment):
            return self._memory.parts(self._offset, self._nbytes)
        return (self._memory[self._offset : self._offset + self._nbytes],)

    def like(self, leaf: torch.Tensor) -> torch.Tensor | None:
        """Return it as a contiguous tensor like `leaf`; `None` where it is in parts."""
        if not isinstance(self._memory, WritableSegment):
            return None
        return self._memory.like(self._offset, self._nbytes, leaf.dtype, leaf.shape)
