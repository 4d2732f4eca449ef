"""The worker class of the tests of `run`, in processes of its own."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch


class Worker:
    """Does what its request says."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        self.rank, self.config = rank, config

    def execute_model(self, request: dict[str, Any]) -> Any:
        if request.get("kill"):
            self._await_others(request["kill"])
            os.kill(os.getpid(), signal.SIGKILL)
        if request.get("fail"):
            raise ValueError(f"no {request['fail']}")
        if "hold" in request:
            time.sleep(request["hold"])
        fill = float(request.get("fill", 0))
        return {
            "latents": torch.full((20_000,), fill, dtype=torch.bfloat16),
            "image": torch.full((3, 6, 8), int(fill), dtype=torch.uint8),
            "rank": self.rank,
            "config": self.config,
        }

    def _await_others(self, path: str) -> None:
        """Wait until the lines of a file say that all others have ended."""
        name, _, lines = path.partition(":")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open(name, "rb") as file:
                if len(file.readlines()) >= int(lines):
                    return
            time.sleep(0.005)
