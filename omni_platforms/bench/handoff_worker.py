"""The worker class of `handoff`: makes outputs, and remembers when each was complete."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from omni_platforms import current_platform
from omni_platforms.bench.forward import Producer


class HandoffWorker:
    """Returns an output of the size that a request asks for, complete or behind products."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        self._device = device
        self._nbytes = 0
        self._producer: Producer | None = None
        self._complete_at: float | None = None

    def execute_model(self, request: dict[str, int]) -> Tensor:
        """Return the output of round `seed`; `products` of 0: wait until it is complete first."""
        producer = self._of_size(request["nbytes"])
        if request["products"]:
            self._complete_at = None
            return producer.behind_products(request["seed"], request["products"])
        value, self._complete_at = producer.complete(request["seed"])
        return value

    def complete_at(self) -> float:
        """Return when the last output was complete on the device, by `perf_counter`."""
        if self._complete_at is None:
            assert self._producer is not None
            return self._producer.ended()
        return self._complete_at

    def _of_size(self, nbytes: int) -> Producer:
        if self._producer is None or self._nbytes != nbytes:
            self._producer = Producer(current_platform(), self._device, nbytes)
            self._nbytes = nbytes
        return self._producer
