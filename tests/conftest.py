"""Fixtures for all tests: the simulated accelerator, which lasts as long as the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from omni_platforms.errors import CompilerMissingError
from omni_platforms.simulator import Simulation, simulate
from tests.ray_nodes import Nodes, running
from tests.simulated import NAME, vendors_platform


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a shell ignores it in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the simulated tests, and run them behind the others, and those with Ray last of all.

    Once a device is simulated torch has an accelerator and pinned memory, which
    tests of a plain CPU must not see; it cannot be undone in this process. Ray keeps threads and
    sockets, which tests that count theirs would see.
    """
    simulated = [item for item in items if "sim" in getattr(item, "fixturenames", ())]
    for item in simulated:
        item.add_marker("simulated")
    late = set(simulated)
    items.sort(key=lambda item: 2 if item.get_closest_marker("ray") else item in late)


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[Nodes]:
    """A Ray cluster of one node, which lasts as long as the tests of this process."""
    with running() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    """The simulated accelerator of this process: device type "sim", two devices."""
    try:
        made = simulate(NAME, device_count=2)
    except CompilerMissingError as error:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(f"simulated: {error}")
        pytest.skip(f"simulated: {error}")
    if NAME != "sim":
        platform = vendors_platform()
        Simulation.platform = property(lambda self: platform)  # type: ignore[assignment]
    return made


@pytest.fixture
def sim(simulation: Simulation) -> Iterator[Simulation]:
    """The simulated accelerator at the start of a run, under the eager schedule."""
    simulation.reset()
    yield simulation
    simulation.reset()
