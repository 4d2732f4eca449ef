"""The image server's worker, slowed down so that a client can leave in the middle of a request."""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "image_server"
Worker = runpy.run_path(str(EXAMPLE / "worker.py"))["Worker"]


class SlowWorker(Worker):  # type: ignore[misc, valid-type]
    """Takes `STEP_S` a step for the prompt "slow", counts steps, and fails for "bad"."""

    STEP_S = 0.01
    made = 0

    def execute_stepwise(self, request: dict[str, Any]) -> Iterator[Any]:
        if request["prompt"] == "bad":
            raise ValueError("no such picture")
        steps = super().execute_stepwise(request)
        while True:
            try:
                yield next(steps)
            except StopIteration as end:
                return end.value
            if request["prompt"] == "slow":
                self.made += 1
                time.sleep(self.STEP_S)

    def slow_steps(self) -> int:
        """Return how many slow steps were made since the last call."""
        made, self.made = self.made, 0
        return made
