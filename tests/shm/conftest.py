"""Every test here must leave no descriptor, mapping or segment behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def open_descriptors() -> set[str]:
    """Return what this process has open that shared memory or its channels could be."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(("/memfd:omni", "/dev/shm", "pipe:", "socket:")):
            found.add(f"{name} {target}")
    return found


def mappings() -> list[str]:
    """Return this process's mappings of shared memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:omni" in line or "/dev/shm/omni" in line]


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    gc.collect()
    before = open_descriptors(), mappings(), os.listdir("/dev/shm")
    yield
    gc.collect()
    assert (open_descriptors(), mappings(), os.listdir("/dev/shm")) == before
