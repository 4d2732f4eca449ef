"""Which device the simulated tests of this process run on."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
import torch

NAME = os.environ.get("OMNI_TESTS_SIMULATE", "sim")
"""`sim`, or a vendor's device: then the vendor's own platform is tested on it."""

UNSUPPORTED = {"musa": {torch.float64, torch.complex128}}.get(NAME, set())
"""Types that such a device has no tensors of."""

needs_graphs = pytest.mark.skipif(
    not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph came with torch 2.12"
)


def seeds(count: int) -> int:
    """Return how many random schedules to explore: all on `sim`, some on vendors' devices."""
    return count if NAME == "sim" else min(count, 4)


def vendors_platform() -> Any:
    """Return the platform that the vendor's plugin makes."""
    plugin = importlib.import_module(f"omni_platforms_{NAME}.plugin")
    return plugin.omni_platforms_create(NAME)
