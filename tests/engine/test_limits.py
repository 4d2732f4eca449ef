"""Small places, made for real: a small /dev/shm, a control group, limits of a process.

Those that need a namespace or a group of their own are slow tests, and skipped where that is
not allowed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omni_platforms import ArenaFullError, MultiprocExecutor, SegmentRefusedError
from tests.engine.fakes import PATIENCE
from tests.shm.test_segment import limit

ROOT = Path(__file__).parents[2]
MB = 1 << 20
SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm && df --output=size -m /dev/shm >&2 && exec "


def run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def program(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.engine.limits", *map(str, arguments)]


# A small /dev/shm -------------------------------------------------------------------------------


def in_small_shm(worker: str, megabytes: int) -> dict[str, Any]:
    """Run in a namespace of its own, whose /dev/shm has 64 MB."""
    own = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    may = shutil.which("unshare") and subprocess.run(
        [*own, f"{SMALL} true"], capture_output=True, check=False
    )
    if not may or may.returncode:
        pytest.skip("no namespaces, or no mounts in them, for this user")
    return run([*own, SMALL + '"$@"', "sh", *program(worker, megabytes)])


@pytest.mark.slow
def test_a_small_shm_changes_nothing() -> None:
    seen = in_small_shm("Worker", 200)
    assert seen == {"first": "right", "large": "right", "healthy": True, "next": "right"}


@pytest.mark.slow
def test_named_memory_in_a_small_shm_costs_the_output_that_does_not_fit() -> None:
    seen = in_small_shm("WithoutMemfd", 100)
    assert seen["large"].startswith("ArenaFullError"), seen
    assert "ENOSPC" in seen["large"]
    assert "/dev/shm" in seen["large"]
    assert (seen["first"], seen["healthy"], seen["next"]) == ("right", True, "right")


@pytest.mark.slow
def test_planted_memory_that_is_not_allocated_first_kills_the_worker() -> None:
    seen = in_small_shm("Lazy", 100)
    assert "SIGBUS" in seen["large"], seen
    assert not seen["healthy"]


# A control group --------------------------------------------------------------------------------


@contextlib.contextmanager
def own_group() -> Iterator[Path]:
    """A control group of version 1 below this process's own; what is in it is killed last."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    mine = [line.split(":")[2] for line in lines if "memory" in line.split(":")[1].split(",")]
    group = Path("/sys/fs/cgroup/memory", *[path.lstrip("/") for path in mine], f"t{os.getpid()}")
    try:
        if not mine:
            raise OSError("none of version 1")
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of our own can be made: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def in_group(group: Path, worker: str, megabytes: int, leaves: int) -> dict[str, Any]:
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    return run(["sh", "-c", enter, "sh", *program(worker, megabytes, group, leaves)])


@pytest.mark.slow
def test_a_control_group_costs_the_output_that_does_not_fit() -> None:
    with own_group() as group:
        seen = in_group(group, "Worker", 300, leaves=150)
    assert seen["large"].startswith("ArenaFullError"), seen
    assert f"the control group's limit in {group}/memory.limit_in_bytes" in seen["large"]
    assert (seen["first"], seen["healthy"], seen["next"]) == ("right", True, "right")


@pytest.mark.slow
def test_planted_memory_that_nobody_asked_for_is_the_workers_end() -> None:
    """The kernel kills whoever is over the limit; the worker, as it is the one that allocates."""
    with own_group() as group:
        seen = in_group(group, "Unasked", 300, leaves=150)
    assert "SIGKILL" in seen["large"], seen
    assert not seen["healthy"]


# Limits of a process ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[MultiprocExecutor]:
    with MultiprocExecutor(
        "tests.engine.workers:Worker", 1, "cpu", arena_cap=64 * MB, arena_segment_bytes=MB,
        arena_initial_bytes=MB, output_timeout=PATIENCE,
    ) as executor:  # fmt: skip
        yield executor


def output(executor: MultiprocExecutor, megabytes: int, value: float) -> Any:
    done = executor.execute_model(("expanded", (value, megabytes * MB // 4)))
    return executor.wait_output_ready(done.async_output_id).result(PATIENCE)


@pytest.mark.parametrize(
    ("name", "most", "match"),
    [
        ("RLIMIT_FSIZE", 2 * MB, r"EFBIG.*ulimit -f, now 2097152 bytes"),
        ("RLIMIT_NOFILE", -1, r"EMFILE.*ulimit -n"),
        ("RLIMIT_AS", -1, r"ENOMEM.*ulimit -v"),
    ],
)
def test_a_limit_of_the_worker_costs_the_output_that_meets_it(
    shared: MultiprocExecutor, name: str, most: int, match: str
) -> None:
    kept = output(shared, 1, 1)
    shared.collective_rpc("limit", args=(name, most), timeout=PATIENCE)
    try:
        with pytest.raises(ArenaFullError, match=match):
            output(shared, 32, 2)
        assert output(shared, 0, 3).numel() == 0, "what needs no new memory arrives"
    finally:
        shared.collective_rpc("limit", args=(name, 0), timeout=PATIENCE)
    assert output(shared, 32, 4).eq(4).all()
    assert kept.eq(1).all()
    del kept
    shared.trim()


def test_a_limit_of_the_consumer_costs_the_output_that_meets_it(
    shared: MultiprocExecutor,
) -> None:
    lowest = os.dup(0)
    os.close(lowest)
    with (
        limit(resource.RLIMIT_NOFILE, lowest),
        pytest.raises(SegmentRefusedError, match="ulimit -n"),
    ):
        output(shared, 8, 1)
    assert shared.check_health()
    assert output(shared, 8, 2).eq(2).all(), "also in the segment that could not be had"
    shared.trim()


def test_no_memory_that_may_be_locked_changes_nothing(shared: MultiprocExecutor) -> None:
    """No page is locked but by a device's driver."""
    shared.collective_rpc("limit", args=("RLIMIT_MEMLOCK", 1), timeout=PATIENCE)
    assert output(shared, 24, 5).eq(5).all()
    shared.collective_rpc("limit", args=("RLIMIT_MEMLOCK", 0), timeout=PATIENCE)
    shared.trim()
