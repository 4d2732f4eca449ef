"""Where in a photo to look closer: the square with the strongest outlines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omni_platforms.demo.noise import Pixels

# Outlines are sought at this coarseness: fur, grass and grain are none.
_COARSE = 4


def detail_box(pixels: Pixels, side: int) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of the square of `side` pixels with the most outlines."""
    height, width = pixels.shape[:2]
    side = min(side, height, width)
    block = min(_COARSE, side)
    sums = _square_sums(_outlines(_blocks(pixels, block)), max(1, side // block))
    row, column = (int(at) for at in np.unravel_index(np.argmax(sums), sums.shape))
    top, left = min(row * block, height - side), min(column * block, width - side)
    return left, top, left + side, top + side


def _blocks(pixels: Pixels, block: int) -> npt.NDArray[np.float64]:
    """Return the mean of every block of `block` times `block` pixels, all colours together."""
    rows, columns = pixels.shape[0] // block, pixels.shape[1] // block
    whole = pixels[: rows * block, : columns * block]
    return np.asarray(whole.reshape(rows, block, columns, block, 3).mean(axis=(1, 3, 4)))


def _outlines(grey: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the squared step to the neighbours below and to the right."""
    down = np.diff(grey, axis=0, append=grey[-1:])
    right = np.diff(grey, axis=1, append=grey[:, -1:])
    return np.asarray(down**2 + right**2)


def _square_sums(values: npt.NDArray[np.float64], side: int) -> npt.NDArray[np.float64]:
    """Return the sum of every square of `side` values."""
    total = np.pad(values, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    return np.asarray(
        total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]
    )
