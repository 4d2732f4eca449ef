"""How an arena grows, registers, refuses, reports and ends."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import pytest
import torch

from omni_platforms.errors import (
    ArenaFullError,
    CorruptPacketError,
    SegmentRefusedError,
)
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, ArenaView, growth
from omni_platforms.shm.memory_left import MemoryLeft
from tests.shm.conftest import connected
from tests.shm.test_segment import limit

MB = 1 << 20
PAGE = 4096
HEAD = struct.Struct("<4sIQ")


# Growth -----------------------------------------------------------------------


def test_it_grows_by_whole_segments_and_the_view_follows() -> None:
    with connected(segment_bytes=MB, cap=8 * MB) as (arena, view):
        kept = [view.unpack(arena.pack(torch.full((MB // 8,), i))) for i in range(5)]
        stats = arena.stats()
        assert (stats.segments, stats.total_bytes, stats.grown) == (5, 5 * MB, 4)
        large = view.unpack(arena.pack(torch.full((MB // 4 * 3,), 9.0)))
        assert arena.stats().total_bytes == 8 * MB, "one larger segment for a larger leaf"
        assert [int(tensor[0]) for tensor in kept] == [0, 1, 2, 3, 4]
        assert large.eq(9).all()
        with pytest.raises(ArenaFullError):
            arena.pack(torch.ones(MB // 2))


def test_what_is_reserved_at_start_is_not_grown_by_under_an_output() -> None:
    with connected(initial_bytes=3 * MB) as (arena, view):
        assert arena.stats().total_bytes == 3 * MB
        arena.reserve(5 * MB)
        kept = [view.unpack(arena.pack(torch.ones(MB // 8))) for _ in range(5)]
        assert arena.stats().grown == 0
        del kept


def test_the_default_cap_is_a_quarter_of_what_is_left() -> None:
    left = MemoryLeft(40 * MB, "the control group's limit in X")
    with mock.patch.object(growth, "memory_left", return_value=left), connected(cap=None) as pair:
        assert pair[0].stats().cap == 10 * MB
        with pytest.raises(ArenaFullError, match=r"cap of 10485760 bytes \(a quarter of the cont"):
            pair[0].pack(torch.ones(3 * MB))


def test_a_leaf_that_can_never_fit_says_so() -> None:
    with connected(cap=2 * MB) as (arena, _):
        with pytest.raises(ArenaFullError, match="larger than the whole arena may be"):
            arena.pack(torch.ones(MB))
        assert arena.stats().segments == 1


def test_a_machine_that_is_full_fails_one_output_and_the_next_small_one_works() -> None:
    with connected() as (arena, view):
        refused = OSError(28, "No space left on device")
        with (
            mock.patch.object(os, "posix_fallocate", side_effect=refused),
            pytest.raises(ArenaFullError, match="ENOSPC") as caught,
        ):
            arena.pack(torch.ones(MB))
        assert isinstance(caught.value.__cause__, SegmentRefusedError)
        assert view.unpack(arena.pack(torch.ones(9000))).sum() == 9000
        assert view.unpack(arena.pack(torch.ones(MB))).sum() == MB


def test_a_limit_of_the_process_fails_one_output() -> None:
    with connected() as (arena, view):
        with (
            limit(resource.RLIMIT_FSIZE, 2 * MB),
            pytest.raises(ArenaFullError, match=r"EFBIG.*ulimit -f"),
        ):
            arena.pack(torch.ones(MB))
        assert view.unpack(arena.pack(torch.ones(9000))).sum() == 9000


def test_no_arena_where_not_even_its_pipe_can_be_made() -> None:
    lowest = os.dup(0)
    os.close(lowest)
    with (
        limit(resource.RLIMIT_NOFILE, lowest + 1),
        pytest.raises(SegmentRefusedError, match=r"a pipe.*ulimit -n"),
    ):
        Arena(CpuPlatform(), cap=MB, segment_bytes=MB)


def test_a_refused_first_segment_leaves_nothing() -> None:
    with (
        mock.patch.object(os, "posix_fallocate", side_effect=OSError(28, "No space")),
        pytest.raises(SegmentRefusedError),
    ):
        Arena(CpuPlatform(), cap=MB, segment_bytes=MB)


@pytest.mark.parametrize("options", [{"cap": 0}, {"cap": -5}, {"segment_bytes": 0}])
def test_sizes_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive segment_bytes"):
        Arena(CpuPlatform(), **{"cap": MB, "segment_bytes": MB, **options})


# Ends -------------------------------------------------------------------------


def test_results_outlive_the_arena_and_the_view() -> None:
    with connected() as (arena, view):
        kept = view.unpack(arena.pack(torch.full((9000,), 4.0)))
    kept.add_(1)
    assert kept.eq(5).all()


def test_a_consumer_that_is_gone_gives_everything_back() -> None:
    with connected() as (arena, view):
        kept = view.unpack(arena.pack(torch.ones(9000)))
        arena.pack(torch.ones(9000))
        view.close()
        assert not arena.consumer_gone, "a result is still there"
        del kept
        assert arena.consumer_gone
        assert arena.stats().lent == arena.stats().used_bytes == 0
        arena.pack(torch.ones(9000))
        assert arena.stats().lent == 0


def test_waiting_for_room() -> None:
    with connected() as (arena, view):
        kept = view.unpack(arena.pack(torch.ones(9000)))
        assert not arena.wait_for_returns(0)
        poller = select.poll()
        poller.register(arena)
        assert not poller.poll(0)
        del kept
        assert poller.poll(0)
        assert arena.wait_for_returns(0)
        assert arena.stats().lent == 0
        assert not arena.wait_for_returns(0)


def test_one_consumer_for_each_arena() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, connected() as (arena, _), pytest.raises(ValueError, match="one arena"):
        arena.connect(ours)


def test_only_a_unix_socket_passes_descriptors() -> None:
    with (
        socket.socket(socket.AF_INET) as other,
        Arena(CpuPlatform(), cap=MB, segment_bytes=MB) as arena,
        pytest.raises(ValueError, match="Unix socket"),
    ):
        arena.connect(other)


@pytest.mark.parametrize(
    "message", [b"", b"hello", HEAD.pack(b"OmFd", 2, 0), HEAD.pack(b"OmGo", 1, 0)]
)
def test_a_view_of_something_else_is_a_typed_error(message: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull) as file:
        if message:
            socket.send_fds(ours, [message], [file.fileno()])
        ours.close()
        with pytest.raises(CorruptPacketError):
            ArenaView.connect(theirs)


def test_a_view_that_nobody_answers_is_a_typed_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(CorruptPacketError, match=r"within 0.01 s"):
        ArenaView.connect(theirs, timeout=0.01)


def test_a_consumer_without_descriptors_left_is_a_typed_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Arena(CpuPlatform(), cap=MB, segment_bytes=MB) as arena:
        arena.connect(ours)
        lowest = os.dup(0)
        os.close(lowest)
        with (
            limit(resource.RLIMIT_NOFILE, lowest + 1),
            pytest.raises(SegmentRefusedError, match="ulimit -n"),
        ):
            ArenaView.connect(theirs)


def _refused_a_descriptor(arena: Arena, view: ArenaView, spare: int) -> None:
    """Grow under an output while this process may open no more than `spare` files."""
    packet = arena.start(torch.full((MB // 2,), 5.0), name="large").wait()
    lowest = os.dup(0)
    os.close(lowest)
    with (
        limit(resource.RLIMIT_NOFILE, lowest + spare),
        pytest.raises(SegmentRefusedError, match="ulimit -n") as caught,
    ):
        view.unpack(packet)
    assert caught.value.untouched
    small = view.unpack(arena.pack(torch.ones(9000)))
    assert small.sum() == 9000, "what is in other segments arrives"


@pytest.mark.parametrize("spare", [0, 1])
def test_a_consumer_that_had_no_descriptor_left_gets_the_segment_later(spare: int) -> None:
    """It can be received, but not mapped, with one to spare."""
    with connected() as (arena, view):
        _refused_a_descriptor(arena, view, spare)
        arena.discard_all_of("large")
        arena.discard_all_of("never was")
        for value in (6.0, 7.0):
            assert view.unpack(arena.pack(torch.full((MB // 2,), value))).eq(value).all()
        assert arena.stats().segments == 2, "in the same segment"


def test_planted_a_segment_that_is_not_announced_again_is_lost() -> None:
    with mock.patch.object(growth.Segments, "announce_again"), connected() as (arena, view):
        _refused_a_descriptor(arena, view, spare=0)
        arena.discard_all_of("large")
        with pytest.raises(SegmentRefusedError):
            view.unpack(arena.pack(torch.full((MB // 2,), 6.0)))


EXITS = {
    "results in globals, nothing closed": "",
    "results in a cycle": "import gc; gc.disable(); c = [result]; c.append(c); del result, c",
    "a result in a thread that does not end": """
        import threading, time
        threading.Thread(target=lambda held=result: time.sleep(60), daemon=True).start()
        del result""",
    "an output without a packet": "packing = arena.start(torch.ones(9000))",
    "an array in sys": "sys.kept = result.numpy(); del result",
    "let go by atexit": "import atexit; atexit.register(lambda held=[result]: held.clear())",
}
_SCRIPT = """
    import os, socket, sys, torch
    from omni_platforms.platform.cpu import CpuPlatform
    from omni_platforms.shm import Arena, ArenaView
    for case in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            break
        print(os.waitpid(child, 0)[1])
    else:
        sys.exit()
    ours, theirs = socket.socketpair()
    arena = Arena(CpuPlatform(), cap=1 << 20, segment_bytes=1 << 20)
    arena.connect(ours)
    view = ArenaView.connect(theirs)
    result = view.unpack(arena.pack(torch.ones(9000)))
    exec(case)
"""


def test_the_interpreter_ends_quietly() -> None:
    """Each case in a fork that ends as a program does; starting one anew takes seconds."""
    cases = map(textwrap.dedent, EXITS.values())
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_SCRIPT), *cases],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.stderr == ""
    assert dict(zip(EXITS, done.stdout.split(), strict=True)) == dict.fromkeys(EXITS, "0")
