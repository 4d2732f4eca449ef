"""A stand-in that is called as a pipeline of diffusers is, and returns what it returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class Pipeline:
    """Makes values of 0 to 1 out of a seed, with its own pictures for `output_type="pil"`."""

    def __init__(self, device: Any = "cpu", shape: tuple[int, ...] = (2, 3, 8, 6)) -> None:
        self.device = torch.device(device)
        self.shape = shape
        self.field = "frames" if len(shape) == 5 else "images"

    def __call__(self, seed: int, output_type: str = "pil", return_dict: bool = True) -> Any:
        values = self.values(seed).to(self.device)
        values = values * 0.5 + 0.25  # computed on the device
        return SimpleNamespace(**{self.field: values}) if return_dict else (values,)

    def values(self, seed: int) -> torch.Tensor:
        return torch.rand(self.shape, generator=torch.Generator().manual_seed(seed))

    def want(self, seed: int) -> torch.Tensor:
        """The pixels `[..., H, W, C]` that the pictures have, computed on the host."""
        values = (self.values(seed) * 0.5 + 0.25) * 255
        return values.round().to(torch.uint8).movedim(-3, -1)
