"""`Bench`: what every benchmark is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from omni_platforms.bench.machine import is_simulated
from omni_platforms.bench.rows import Count, Target
from omni_platforms.platform.interface import OmniPlatform


def _silent(message: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Bench:
    """One run of the command.

    `rounds` is how often each way is measured in a case. `quick` asks for the small
    cases only: all benchmarks together then end in about a minute on two cores.
    `progress(message)` tells people what is being measured; it may be called by the thread
    that runs the benchmark only. `counts` and `warnings` take what is no row. `forward_s`
    (seconds) and `output_bytes` (a multiple of four) are the workload that is asked about, where
    one is.
    """

    platform: OmniPlatform
    device: torch.device
    rounds: int
    quick: bool = False
    progress: Callable[[str], None] = _silent
    forward_s: float | None = None
    output_bytes: int | None = None
    counts: list[Count] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def aims(self) -> bool:
        """Whether targets apply: on an accelerator that is there, and not a simulated one."""
        return self.device.type != "cpu" and not is_simulated(self.platform)

    def targets(self, targets: dict[str, Target]) -> dict[str, Target]:
        """Return the targets as they are where they apply, and elsewhere unclaimed."""
        return {way: replace(target, claimed=self.aims) for way, target in targets.items()}

    def warn(self, message: str) -> None:
        """Add a warning to the result, once."""
        if message not in self.warnings:
            self.warnings.append(message)
