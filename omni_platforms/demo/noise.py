"""Seeded sensor noise, and PSNR to measure what is left of it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def add_noise(pixels: Pixels, sigma: float, seed: int) -> Pixels:
    """Return `pixels` with white noise of standard deviation `sigma` (white is 1).

    The same arguments give the same noise. `sigma` 0 returns `pixels` itself.
    """
    if sigma == 0:
        return pixels
    noise = np.random.default_rng(seed).standard_normal(pixels.shape, dtype=np.float32)
    noise *= np.float32(255 * sigma)
    noise += pixels
    return np.rint(noise.clip(0, 255, out=noise)).astype(np.uint8)


def psnr(pixels: Pixels, original: Pixels) -> float:
    """Return the peak signal-to-noise ratio in decibels; infinite when they are equal."""
    difference = pixels.astype(np.float32) - original
    error = float(np.mean(np.square(difference), dtype=np.float64))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)
