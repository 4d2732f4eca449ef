"""Segments: allocated, sealed and mapped, or refused with an error that names the limit."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from omni_platforms.errors import SegmentRefusedError
from omni_platforms.shm import memory_left as memory_module
from omni_platforms.shm import named, placement
from omni_platforms.shm import segment as segment_module
from omni_platforms.shm.memory_left import MemoryLeft, memory_left
from omni_platforms.shm.segment import Segment, address_of
from tests.shm.conftest import names_of

SIZE = 1 << 20


@contextmanager
def limit(kind: int, soft: int) -> Iterator[None]:
    """Lower one of this process's limits for a moment."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.fixture(params=["memfd", "named"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both kinds of segment: as on Linux, and as where there is no `memfd_create`."""
    if request.param == "memfd":
        yield "memfd"
        return
    with mock.patch.object(os, "memfd_create", create=True):
        del os.memfd_create
        yield "named"


def test_both_ends_see_the_same_pages(kind: str) -> None:
    made = Segment.create(SIZE)
    assert made.kind == kind
    seen = Segment.attach(os.dup(made.descriptor))
    made.mapping[5:8] = b"abc"
    assert seen.mapping[5:8] == b"abc"
    assert (made.size, seen.size) == (SIZE, SIZE)
    made.close()
    assert seen.mapping[5:8] == b"abc"


def test_all_pages_are_allocated_before_use(kind: str) -> None:
    made = Segment.create(SIZE)
    assert os.fstat(made.descriptor).st_blocks * 512 >= SIZE
    made.close()


def test_the_size_is_sealed_for_ever() -> None:
    made = Segment.create(SIZE)
    for size in (SIZE // 2, SIZE * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(made.descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(made.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    made.close()


def test_without_the_seal_a_process_could_take_pages_away() -> None:
    with mock.patch.object(segment_module, "_seal"):
        made = Segment.create(SIZE)
    os.ftruncate(made.descriptor, SIZE // 2)  # the next touch would be a SIGBUS
    made.close()


def test_the_name_is_gone_at_once() -> None:
    with mock.patch.object(os, "memfd_create", create=True):
        del os.memfd_create
        made = Segment.create(SIZE)
    assert made.kind == "named"
    assert names_of(os.getpid()) == []
    made.close()


def test_a_descriptor_does_not_reach_programs_that_are_started(kind: str) -> None:
    made = Segment.create(SIZE)
    assert not os.get_inheritable(made.descriptor)
    made.close()


# Refusals ---------------------------------------------------------------------


def test_a_full_machine_is_an_error_and_leaves_nothing(kind: str) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(os, "posix_fallocate", side_effect=full),
        pytest.raises(SegmentRefusedError, match=r"ENOSPC.*use a smaller arena"),
    ):
        Segment.create(SIZE)


def test_a_machine_that_fills_up_on_the_way_is_an_error_too() -> None:
    allocate, calls = os.posix_fallocate, []

    def second_is_refused(*args: int) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(*args)

    with (
        mock.patch.object(segment_module, "_STEP_BYTES", SIZE // 2),
        mock.patch.object(os, "posix_fallocate", second_is_refused),
        pytest.raises(SegmentRefusedError, match="ENOSPC"),
    ):
        Segment.create(SIZE)
    assert calls[1][1:] == (SIZE // 2, SIZE // 2)


def test_memory_that_nobody_has_left_is_not_even_asked_for() -> None:
    left = MemoryLeft(SIZE - 1, "a limit")
    with (
        mock.patch.object(segment_module, "memory_left", return_value=left),
        mock.patch.object(os, "posix_fallocate") as allocate,
        pytest.raises(SegmentRefusedError, match="left under a limit"),
    ):
        Segment.create(SIZE)
    allocate.assert_not_called()


def test_the_limit_on_file_sizes_is_named(kind: str) -> None:
    with (
        limit(resource.RLIMIT_FSIZE, SIZE // 2),
        pytest.raises(SegmentRefusedError, match=rf"EFBIG.*ulimit -f, now {SIZE // 2} bytes"),
    ):
        Segment.create(SIZE)


@pytest.mark.parametrize("spare", [0, 1])
def test_the_limit_on_open_files_is_named(kind: str, spare: int) -> None:
    """With one to spare the file can be opened but not mapped: Python's mmap keeps its own."""
    lowest = os.dup(0)
    os.close(lowest)
    with (
        limit(resource.RLIMIT_NOFILE, lowest + spare),
        pytest.raises(SegmentRefusedError, match=rf"EMFILE.*ulimit -n, now {lowest + spare}"),
    ):
        Segment.create(SIZE)


def test_an_empty_or_foreign_descriptor_is_refused_and_closed() -> None:
    for flags in (os.MFD_CLOEXEC, None):
        descriptor = os.open("/", os.O_RDONLY) if flags is None else os.memfd_create("x", flags)
        with pytest.raises(SegmentRefusedError):
            Segment.attach(descriptor)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_pages_are_there_also_without_fallocate() -> None:
    with mock.patch.object(os, "posix_fallocate", create=True):
        del os.posix_fallocate
        made = Segment.create(SIZE)
    assert os.fstat(made.descriptor).st_blocks * 512 >= SIZE
    made.close()


# The sweep --------------------------------------------------------------------


def leave(folder: Path, process: int, start: int | None, namespace: int | None = None) -> Path:
    space = named._namespace() if namespace is None else namespace
    file = folder / f"{named.PREFIX}-{process:x}-{start or 0:x}-{space:x}-0"
    file.touch()
    return file


def dead_process() -> tuple[int, int]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = named._start(child.pid)
    child.communicate(b"\n")
    assert start
    return child.pid, start


def test_only_what_dead_owners_left_is_swept(tmp_path: Path) -> None:
    me, (dead, start) = os.getpid(), dead_process()
    gone = [leave(tmp_path, dead, start), leave(tmp_path, me, (named._start(me) or 0) + 1)]
    kept = [
        leave(tmp_path, me, named._start(me)),
        leave(tmp_path, dead, 0),
        leave(tmp_path, dead, start, namespace=1),
        tmp_path / "omni-not-ours",
        tmp_path / "psm_12345",
    ]
    for file in kept:
        file.touch()
    assert sorted(named.sweep(tmp_path)) == sorted(file.name for file in gone)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_process_that_is_killed_before_the_name_is_gone_is_swept() -> None:
    code = """
        import _posixshmem, os, signal
        from omni_platforms.shm import named
        _posixshmem.shm_unlink = lambda name: os.kill(os.getpid(), signal.SIGKILL)
        named.new_descriptor()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    assert child.wait(60) == -9
    assert len(names_of(child.pid)) == 1
    named.sweep()
    assert names_of(child.pid) == []


def test_there_is_nothing_to_sweep_where_names_cannot_be_listed(tmp_path: Path) -> None:
    assert named.sweep(tmp_path / "none") == []


# What is left -----------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_tightest_group_decides(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/memory.max": "5000\n",
        "sys/fs/cgroup/a/memory.current": "4000\n",
        "sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 300\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "10\n",
    })  # fmt: skip
    left = memory_left(tmp_path)
    assert left.nbytes == 1300
    assert left.limit.endswith("a/memory.max")


def test_the_first_version_of_control_groups_counts_too(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/job\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "5000",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "6000",
    })  # fmt: skip
    assert memory_left(tmp_path).nbytes == 0


def test_a_machine_without_groups_has_its_own_memory(tmp_path: Path) -> None:
    host = mock.Mock(available=77)
    with mock.patch.object(memory_module.psutil, "virtual_memory", return_value=host):
        assert memory_left(tmp_path) == (77, "the host's available memory")


# NUMA -------------------------------------------------------------------------


def policy_of(mapping: mmap.mmap) -> str:
    start = f"{address_of(mapping):x} "
    lines = Path("/proc/self/numa_maps").read_text().splitlines()
    return next(line for line in lines if line.lstrip("0").startswith(start))


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="no NUMA in this kernel")
def test_pages_are_asked_for_on_the_devices_node() -> None:
    made = Segment.create(SIZE, node=0)
    if made.node is None:
        pytest.skip("this container forbids mbind")
    assert "prefer:0" in policy_of(made.mapping).replace("prefer=", "prefer:")
    made.close()


def test_a_node_that_cannot_be_had_changes_nothing() -> None:
    made = Segment.create(SIZE, node=1000)
    assert made.node is None
    made.mapping[:3] = b"abc"
    made.close()


@pytest.mark.parametrize("machine", ["x86_64", "a-new-one"])
def test_placement_says_no_where_it_knows_no_call(machine: str) -> None:
    with mock.patch.object(placement.platform, "machine", return_value=machine):
        assert placement.prefer_node(0, 4096, -1) is False
