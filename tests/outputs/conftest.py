"""Fixtures of the executor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform


@pytest.fixture
def cpu_outputs() -> Iterator[AsyncOutputExecutor]:
    """An executor on the CPU platform, whose primitives all return `None`."""
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        yield outputs
