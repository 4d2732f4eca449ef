"""Every test here must leave no process, descriptor, mapping or thread of a worker behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from omni_platforms.shm.lease import open_leases
from tests.engine.driver import Driver, driven
from tests.shm.conftest import traces


def workers_left() -> set[int]:
    """Return the processes below this one that are, or were, workers."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if "omni_platforms.engine" in " ".join(child.cmdline()):
                found.add(child.pid)
        except psutil.Error:  # a zombie has no command line, and is one too many
            found.add(child.pid)
    return found


def threads_left() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith("omni-"))


def _without_short_threads() -> list[str]:
    """Return our threads, once those that only send one message have had time to end."""
    deadline = time.monotonic() + 5
    while any(name.startswith("omni-to-") for name in threads_left()):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return threads_left()


@pytest.fixture(scope="package", autouse=True)
def _quick_collections() -> Iterator[None]:
    """Let the collector, which the tests here run, look only at what they made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="package")
def shared() -> Iterator[Driver]:
    """A worker on the CPU for all tests that do not end it: starting one takes seconds."""
    with driven(config={"model": "tiny"}, arena_cap=16 << 20) as driver:
        yield driver


@pytest.fixture
def worker(shared: Driver) -> Iterator[Driver]:
    """The shared worker, which must be as idle and as empty afterwards."""
    yield shared
    gc.collect()
    assert shared.seen == [], "messages that nobody expected"
    shared.await_nothing_left()  # an output leaves the table just after it was sent
    assert open_leases() == 0


@pytest.fixture
def nothing_stays_behind() -> Iterator[None]:
    gc.collect()
    before = traces(), workers_left(), _without_short_threads()
    yield
    gc.collect()
    assert (traces(), workers_left(), _without_short_threads()) == before
