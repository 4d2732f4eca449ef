"""A worker whose pictures can be told apart, and which shows them step by step.

It stands in for a diffusion model: it starts from noise and comes closer to a landscape that the
seed decides, all of it on the device. Put a pipeline of yours in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

_PREVIEW_EVERY = 4  # pixels: a preview has a sixteenth of the bytes


class Worker:
    """Makes pictures `[side, side, 3]`, uint8. `config` may hold "side", in pixels."""

    def __init__(self, rank: int, device: torch.device, config: dict[str, Any] | None) -> None:
        self.device = device
        self.side = (config or {}).get("side", 512)

    @torch.inference_mode()
    def execute_stepwise(self, request: dict[str, Any]) -> Iterator[torch.Tensor]:
        """Yield a small preview behind each step; return the picture."""
        generator = torch.Generator().manual_seed(request["seed"])
        noise = torch.randn(3, self.side, self.side, generator=generator).to(self.device)
        scene = self._scene(generator)
        steps = request["steps"]
        image = noise
        for step in range(1, steps + 1):
            share = math.sin(math.pi / 2 * step / steps)
            image = scene * share + noise * (1 - share)
            yield _pixels(image[:, ::_PREVIEW_EVERY, ::_PREVIEW_EVERY])
        return {"prompt": request["prompt"], "image": _pixels(image)}

    def execute_model(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the same picture without previews."""
        steps = self.execute_stepwise(request)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return dict(end.value)

    def _scene(self, generator: torch.Generator) -> torch.Tensor:
        """Return hills under a sky with a sun, `[3, side, side]`, values of about -1 to 1."""
        hue, height, where = torch.rand(3, generator=generator).tolist()
        y, x = torch.meshgrid(
            torch.linspace(0, 1, self.side, device=self.device),
            torch.linspace(0, 1, self.side, device=self.device),
            indexing="ij",
        )
        sky = torch.stack([y * (0.3 + hue), 0.2 + y * 0.6, 1 - y * hue]) * 2 - 1
        sun = torch.exp(-((x - where) ** 2 + (y - 0.3) ** 2) / 0.006)
        image = sky + sun * torch.tensor([2.0, 1.6, 0.4], device=self.device)[:, None, None]
        for layer in range(3):
            ridge = 0.55 + 0.12 * layer + 0.08 * torch.sin(x * (5 + 4 * layer) + 6 * height + layer)
            green = torch.tensor([-0.7 + hue * 0.5, 0.1, -0.6], device=self.device)[:, None, None]
            image = torch.where(y > ridge, green - 0.25 * layer, image)
        return image.clamp(-1, 1)


def _pixels(image: torch.Tensor) -> torch.Tensor:
    """Return values of -1 to 1 as uint8 pixels, channels last."""
    return ((image.clamp(-1, 1) + 1) * 127.5).to(torch.uint8).movedim(0, -1).contiguous()
