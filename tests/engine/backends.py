"""The executors that the shared tests run against: processes of this host, and workers on Ray."""

from __future__ import annotations

from typing import Any

import pytest

from omni_platforms import MultiprocExecutor
from omni_platforms.engine.interface import Executor

RAY = [pytest.mark.ray, pytest.mark.xdist_group("ray")]
"""For every test that needs the cluster: one process of pytest runs them all."""


def backends(group: str, slow: tuple[str, ...] = ("ray", "ray-store")) -> list[Any]:
    """Return the parameters of a fixture: "process" in a group of its own, and the ways of Ray.

    With memory that the driver maps Ray's workers are those of one host ("ray"). All outputs by
    the object store are what workers of other hosts have ("ray-store").
    """
    ways = ("ray", "ray-store")
    return [
        pytest.param("process", marks=pytest.mark.xdist_group(group)),
        *(pytest.param(w, marks=[*RAY, pytest.mark.slow] if w in slow else RAY) for w in ways),
    ]


def executor_on(request: pytest.FixtureRequest, backend: str, *args: Any, **room: Any) -> Executor:
    """Make an executor of one of `backends`."""
    if backend == "process":
        return MultiprocExecutor(*args, **room)
    nodes = request.getfixturevalue("ray_nodes")
    from omni_platforms.engine.ray import RayExecutor

    outputs: Any = "object_store" if backend == "ray-store" else "auto"
    room.setdefault("store_cap", 2 * room.get("arena_cap", 16 << 20))
    return RayExecutor(*args, outputs=outputs, **nodes.options, **room)


def store_bytes(executor: Executor) -> int:
    """Return what outputs of other hosts take in the object store; 0 where there is none."""
    site = getattr(executor, "_site", None)
    return 0 if site is None else int(site.budget.used)
