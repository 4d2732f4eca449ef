"""`PipelineWorker`: the forwards of the benchmark `pipeline`, in a process of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from omni_platforms.bench.common_path import blocking_copy
from omni_platforms.bench.forwards import Forward, Request
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.selection import current_platform

BLOCKING = "blocking"


class Model(Protocol):
    """What computes requests."""

    def __call__(self, request: Request) -> Any:
        """Enqueue a request's work; return its output on the device, a tensor or a dict."""

    def forget(self) -> None:
        """Let go of what is as large as the outputs."""


class PipelineWorker:
    """Runs requests under `MultiprocExecutor`."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        self._platform = current_platform()
        self._device = device
        self._forward = self.model(self._platform, device, config)

    def model(self, platform: OmniPlatform, device: torch.device, config: Any) -> Model:
        """Return what computes the requests."""
        return Forward(platform, device)

    def execute_model(self, request: Request) -> Any:
        """Return the output as it is on the device, or, for a blocking request, on the host."""
        output = self._forward(request)
        return to_host(output) if request.way == BLOCKING else output

    def forwards_alone(self, requests: Sequence[Request]) -> float:
        """Return the seconds that the requests' forwards take when nobody takes their outputs."""
        return forwards_alone(self._forward, self._platform, self._device, requests)

    def forget(self) -> None:
        """Let go of what is as large as the outputs."""
        self._forward.forget()


def to_host(output: Any) -> Any:
    """Return a tensor, or the tensors of a dict, copied to the host with blocking calls."""
    if isinstance(output, dict):
        return {name: blocking_copy(value) for name, value in output.items()}
    return blocking_copy(output)


def forwards_alone(
    forward: Model, platform: OmniPlatform, device: torch.device, requests: Sequence[Request]
) -> float:
    """Run forwards back to back and block until the device is done; return the seconds."""
    platform.synchronize(device)
    start = time.perf_counter()
    for request in requests:
        forward(request)
    platform.synchronize(device)
    return time.perf_counter() - start
