"""Which mode is taken, and that it is said why."""

from __future__ import annotations

import pytest

from omni_platforms.errors import JobError
from omni_platforms.jobs.modes import choose_mode
from omni_platforms.platform import OmniPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.cpu import CpuPlatform


def platform(*capabilities: Capability) -> OmniPlatform:
    made = type("P", (OmniPlatform,), {"name": "p", "capabilities": frozenset(capabilities)})
    return made()


BOTH = platform(Capability.SIDE_STREAMS, Capability.DEVICE_EVENTS)


@pytest.mark.parametrize(
    ("asked", "where", "taken", "reason"),
    [
        ("auto", BOTH, "async", "p has side streams and events"),
        ("auto", CpuPlatform(), "sync", "cpu has no side streams and no device events"),
        ("auto", platform(Capability.SIDE_STREAMS), "sync", "p has no device events"),
        ("sync", BOTH, "sync", "as asked"),
        ("async", CpuPlatform(), "async", "as asked"),
    ],
)
def test_the_mode(asked: str, where: OmniPlatform, taken: str, reason: str) -> None:
    mode = choose_mode(asked, where, 2)
    assert (mode.taken, mode.asked) == (taken, asked)
    assert reason in str(mode)


def test_only_async_sends_a_request_before_the_last_one_has_ended() -> None:
    sync, ahead = choose_mode("sync", BOTH, 3), choose_mode("async", BOTH, 3)
    assert (sync.window, sync.in_flight) == (1, 3)
    assert ahead.window == 2
    assert ahead.in_flight > 3 * ahead.window


def test_a_window_that_is_asked_for_is_taken() -> None:
    for asked in ("async", "auto"):
        mode = choose_mode(asked, CpuPlatform(), 3, window=5)
        assert (mode.taken, mode.window) == ("async", 5)
        assert mode.in_flight > 15
    assert "a window of 5 was asked for" in str(mode)
    assert choose_mode("sync", BOTH, 3, window=1).window == 1
    with pytest.raises(JobError, match="one request at a worker, not 2"):
        choose_mode("sync", BOTH, 3, window=2)
