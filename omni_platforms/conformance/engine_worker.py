"""The worker class that T4 runs in a process of its own."""

from __future__ import annotations

from typing import Any

import torch

NUMBERS = 20_000


class Worker:
    """Computes outputs, and uses their device memory again at once."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        self._device = device

    def execute_model(self, request: int) -> dict[str, Any]:
        """Return two tensors of twice the number, and the number."""
        image = torch.full((NUMBERS,), float(request), device=self._device).mul_(2)
        output = {"image": image, "few": image[:5], "request": request}
        del image
        return output

    def reuse(self) -> str:
        """Write over free device memory; return the device that is current here."""
        torch.full((NUMBERS,), 99.0, device=self._device)
        return str(self._device)
