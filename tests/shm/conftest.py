"""Every test here must leave no descriptor, mapping or segment behind."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import Arena, ArenaView


def open_descriptors() -> set[str]:
    """Return what this process has open that shared memory or its channels could be."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(("/memfd:omni", "/dev/shm/omni", "pipe:", "socket:")):
            found.add(f"{name} {target}")
    return found


def mappings() -> list[str]:
    """Return this process's mappings of shared memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:omni" in line or "/dev/shm/omni" in line]


def names_of(process: int) -> list[str]:
    """Return the named segments of one process; other test processes have theirs."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"omni-{process:x}-")]


def traces() -> tuple[set[str], list[str], list[str]]:
    """Return everything that an arena could leave behind."""
    return open_descriptors(), mappings(), names_of(os.getpid())


@pytest.fixture(scope="package", autouse=True)
def _quick_collections() -> Iterator[None]:
    """Let the collector, which every test here runs, look only at what the tests made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    before = traces()
    yield
    gc.collect()
    assert traces() == before


@contextmanager
def connected(
    platform: OmniPlatform | None = None, **options: Any
) -> Iterator[tuple[Arena, ArenaView]]:
    """An arena and its view, both in this process."""
    options.setdefault("segment_bytes", 1 << 20)
    options.setdefault("cap", 16 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs, Arena(platform or CpuPlatform(), **options) as arena:
        arena.connect(ours)
        with ArenaView.connect(theirs) as view:
            yield arena, view


@pytest.fixture
def pair() -> Iterator[tuple[Arena, ArenaView]]:
    """A small arena on the CPU platform, which copies with blocking calls, and its view."""
    with connected() as both:
        yield both
