"""Kernels that one of torch's own device types needs beside those of an outside device.

For such a type torch takes ways of its own, into kernels that a build without
the device does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from omni_platforms.simulator.operators.copies import Copies
from omni_platforms.simulator.operators.fallback import Fallback
from omni_platforms.simulator.runtime import Runtime

aten = torch.ops.aten


def kernels(
    key: str, runtime: Runtime, fallback: Fallback
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield the dispatch key, the name and the kernel of each operator."""
    copies = Copies(runtime)

    def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
        return copies.copy(source, target, non_blocking)

    def convolution(*args: Any) -> Any:
        return fallback(aten.convolution.default, *args)

    def convolution_backward(*args: Any) -> Any:
        return fallback(aten.convolution_backward.default, *args)

    yield key, "copy_", copy
    yield key, "convolution", convolution
    yield key, "convolution_backward", convolution_backward
