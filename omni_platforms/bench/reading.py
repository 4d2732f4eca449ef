"""What consumes outputs: it reads every page inside the clock, and all bytes outside."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import torch

from omni_platforms.bench.check import Pattern, stamp_of
from omni_platforms.bench.forwards import Request
from omni_platforms.errors import BenchError

PAGE_WORDS = 1024
"""How many int32 a page of 4096 bytes holds."""

_PIECE = 1 << 24  # words: so few are read of it that torch does so on this thread


class Reader(Protocol):
    """What reads the outputs of one measurement, one after the other."""

    def read(self, output: Any, request: Request) -> None:
        """Read every page of an output, as part of what is timed. Raises `BenchError`."""

    def check_last(self) -> None:
        """Check every byte of the last output, outside of clocks. Raises `BenchError`."""


class PatternReader:
    """Reads outputs of `Forward`, and keeps the last one for a whole check."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last: tuple[torch.Tensor, Request] | None = None

    def read(self, output: torch.Tensor, request: Request) -> None:
        """Read one number of every page, and the last of all; part of what is timed.

        Raises `BenchError` where one is not what the request's forward wrote.
        """
        found = output.reshape(-1)
        pages, last = _expected(request.output_bytes)
        stamp = stamp_of(request.number)
        if found.nbytes != request.output_bytes or int(found[-1]) ^ stamp != last:
            raise self._wrong(request)
        for piece, wanted in zip(torch.split(found, _PIECE), pages, strict=True):
            if not torch.equal(piece[::PAGE_WORDS] ^ stamp, wanted):
                raise self._wrong(request)
        self._last = (output, request)

    def check_last(self) -> None:
        """Compare every byte of the output that was read last, and let it go. Outside of clocks.

        Raises `BenchError` for a wrong byte, and where nothing was read.
        """
        if self._last is None:
            raise BenchError(f"{self._what}: no output arrived; no figure of this run counts")
        (output, request), self._last = self._last, None
        _pattern(request.output_bytes).check(output, request.number, self._what)

    def _wrong(self, request: Request) -> BenchError:
        return BenchError(
            f"{self._what}: output {request.number} of {request.output_bytes} bytes holds other "
            "bytes than its forward wrote; no figure of this run can be believed: run "
            "omni-platforms doctor"
        )


@lru_cache(maxsize=1)  # one is as large as an output
def _pattern(nbytes: int) -> Pattern:
    return Pattern(nbytes)


@lru_cache(maxsize=8)
def _expected(nbytes: int) -> tuple[list[torch.Tensor], int]:
    words = _pattern(nbytes).base_on(torch.device("cpu"))
    pages = [piece[::PAGE_WORDS].clone() for piece in torch.split(words, _PIECE)]
    return pages, int(words[-1])
