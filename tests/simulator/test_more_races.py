"""More bugs of stream code: each is seen every time, and its right twin never fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from omni_platforms.simulator import Simulation
from tests.simulator.stream_bugs import (
    BUGS,
    Corrupt,
    native_event_for_generic_stream,
    pinned_buffer_back_too_early,
)

Bug = Callable[[bool], None]
every_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda f: f.__name__)


@pytest.fixture(autouse=True)
def _faults_of_the_device(sim: Simulation, bug: Bug) -> Iterator[None]:
    """The vendor's event class is one that torch's streams ignore, where that is the bug."""
    faults = ["native-event-ignored"] if bug is native_event_for_generic_stream else []
    with sim.faulty(*faults):
        yield


@every_bug
def test_a_planted_bug_is_seen_every_time(sim: Simulation, bug: Bug) -> None:
    for _ in range(20):
        found = sim.explore(lambda: bug(False))
        assert any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)


@pytest.mark.parametrize(
    "bug", [b for b in BUGS if b is not pinned_buffer_back_too_early], ids=lambda f: f.__name__
)
def test_a_planted_bug_hides_under_the_eager_schedule(sim: Simulation, bug: Bug) -> None:
    assert not sim.explore(lambda: bug(False)).failed("eager")


@every_bug
def test_the_right_twin_passes(sim: Simulation, bug: Bug) -> None:
    found = sim.explore(lambda: bug(True), seeds=20)
    assert found.ok, str(found)


@pytest.mark.slow
@every_bug
def test_the_right_twin_never_fails(sim: Simulation, bug: Bug) -> None:
    found = sim.explore(lambda: bug(True), seeds=200)
    assert found.ok, str(found)


@every_bug
def test_a_failing_schedule_fails_again(sim: Simulation, bug: Bug) -> None:
    failure = sim.explore(lambda: bug(False), seeds=10).failures[-1]
    with pytest.raises(Corrupt):
        sim.replay(lambda: bug(False), failure.schedule)
