"""The bytes that benchmarks move, and the proof that they arrived.

Each round moves other bytes, so that a result that is late, early or left over
from the round before is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omni_platforms.errors import BenchError

_FACTOR = 0x9E3779B1 - (1 << 32)  # odd, so that neighbours differ in every byte
_MASK = 0x7FFFFFFF
_PIECE = 1 << 18


class Pattern:
    """Outputs of `nbytes`, as int32 `[nbytes // 4]`, which any process can make and check.

    It is made from its size alone, so a process is told the size and the number of
    the round, and never the bytes. One thread at a time may check with it. Raises
    `ValueError` for a size that is not a positive multiple of four.
    """

    def __init__(self, nbytes: int) -> None:
        if nbytes <= 0 or nbytes % 4:
            raise ValueError(f"a pattern has a positive multiple of 4 bytes, not {nbytes}")
        self.nbytes = nbytes
        self._base = torch.arange(nbytes // 4, dtype=torch.int32).mul_(_FACTOR)
        self._room = torch.empty_like(self._base[:_PIECE])

    def base_on(self, device: torch.device) -> Tensor:
        """Return the bytes of round 0 on `device`, for `stamp`. Blocks until they are there."""
        return self._base.to(device, copy=True)

    def check(self, value: Tensor, seed: int, what: str) -> None:
        """Compare `value`, on the host, with the bytes of round `seed`.

        Reads every byte, so it stands outside of every clock. Raises `BenchError` which
        names `what` moved the wrong bytes, where the first one is and how many elements differ.
        """
        if value.dtype != torch.int32 or value.numel() * 4 != self.nbytes:
            raise BenchError(
                f"{what}: {value.dtype} {tuple(value.shape)} arrived instead of "
                f"{self.nbytes} bytes of int32; no figure of this run can be believed"
            )
        flat, mark = value.reshape(-1), stamp_of(seed)
        # Piece by piece, so that a large output is compared in the processor's caches.
        pieces = zip(torch.split(flat, _PIECE), torch.split(self._base, _PIECE), strict=True)
        if not all(self._same(piece, mark, wanted) for piece, wanted in pieces):
            raise self._wrong(torch.ne(flat ^ mark, self._base), seed, what)

    def _same(self, piece: Tensor, mark: int, wanted: Tensor) -> bool:
        """Compare without allocating: what is counted around a check must not be the check's."""
        return torch.equal(torch.bitwise_xor(piece, mark, out=self._room[: len(piece)]), wanted)

    def _wrong(self, different: Tensor, seed: int, what: str) -> BenchError:
        count, first = int(torch.count_nonzero(different)), int(torch.nonzero(different)[0])
        return BenchError(
            f"{what}: {count} of {self.nbytes // 4} elements are wrong in round {seed}, the "
            f"first at byte {4 * first} of {self.nbytes}; no figure of this run can be "
            "believed: run omni-platforms doctor"
        )


def stamp(base: Tensor, seed: int, out: Tensor | None = None) -> Tensor:
    """Return the bytes of round `seed`, made from those of round 0 by one kernel on their device.

    Into `out` where it is given. Does not wait for the device.
    """
    return torch.bitwise_xor(base, stamp_of(seed), out=out)


def stamp_of(seed: int) -> int:
    """Return the number that round `seed` is marked with: neighbours differ in every byte."""
    return (seed * _FACTOR) & _MASK
