"""A worker on the second device: every thread of it, and nothing of it on the first."""

from __future__ import annotations

import os

import pytest

from omni_platforms.errors import CompilerMissingError, WorkerStartError
from tests.engine.driver import driven

pytestmark = pytest.mark.simulated

ENVIRONMENT = {"OMNI_SIMULATE": "sim", "OMNI_SIMULATE_SCHEDULE": "lazy:0.1"}


def devices_of(kind: str) -> tuple[dict[str, list[int]], int]:
    """Return which devices each thread was on when it waited, and bytes of the first device."""
    try:
        with driven(kind, platform="sim", environment=ENVIRONMENT, device_index=1) as worker:
            assert worker.started.device == "sim:1"
            for value in range(5):
                assert worker.run(("fill", (value, 50_000))).eq(value).all()
            return worker.call("devices_of_waits"), worker.call("bytes_ever_on", 0)
    except WorkerStartError as error:
        if not isinstance(error.__cause__, CompilerMissingError) or os.environ.get("CI"):
            raise
        pytest.skip(f"simulated: {error}")


def test_every_thread_is_on_the_workers_device() -> None:
    devices, on_the_first = devices_of("WatchesDevices")
    assert devices == {"omni-outputs": [1]}, "and the main thread never waits"
    assert on_the_first == 0


@pytest.mark.slow
def test_planted_a_thread_that_stays_on_the_first_device_is_seen() -> None:
    devices, _ = devices_of("StaysOnTheFirst")
    assert devices == {"omni-outputs": [0]}
