"""Segments of which nothing is in use are given back: for a larger leaf, and when that is asked.

The protections are removed one by one in `PLANTED`, and the test that stands for each turns red.
"""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import ArenaFullError, CaptureError, HostRegistrationError
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms.shm import Arena, ArenaView, Packet, growth, registered, segment
from omni_platforms.shm.allocator import Allocator, Block
from omni_platforms.shm.growth import Segments, fewest
from omni_platforms.shm.mapped import MappedSegments
from omni_platforms.shm.memory_left import MemoryLeft
from omni_platforms.shm.passing import Sender
from omni_platforms.shm.segment import Segment
from omni_platforms.simulator import Simulation
from tests.shm import conftest
from tests.shm.conftest import connected

MB = 1 << 20
Pair = tuple[Arena, ArenaView]


def image(megabytes: float, value: float = 1.0) -> torch.Tensor:
    return torch.full((int(megabytes * MB) // 4,), float(value))


def handed_over(pair: Pair, megabytes: float, value: float = 1.0) -> torch.Tensor:
    arena, view = pair
    result = view.unpack(arena.pack(image(megabytes, value)))
    assert isinstance(result, torch.Tensor)
    return result


def fill_with_small_segments(pair: Pair, count: int = 8) -> list[torch.Tensor]:
    """Return results that fill `count` segments of 1 MB."""
    return [handed_over(pair, 1, value=float(i)) for i in range(count)]


_before: set[str] = set()
"""What the process had mapped before the test: other tests' results may still be there."""


@pytest.fixture(autouse=True)
def _only_this_tests_mappings() -> Iterator[None]:
    _before.update(conftest.mappings())
    yield
    _before.clear()


def mappings() -> list[str]:
    """Return what this test has mapped."""
    return [line for line in conftest.mappings() if line not in _before]


def resident() -> int:
    """Return how many bytes of this test's arenas are in page tables; both ends count."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = "/memfd:omni" in line and line not in _before
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


# Room for a larger leaf ---------------------------------------------------------


def small_segments_do_not_starve_a_large_leaf() -> None:
    with connected(cap=8 * MB) as pair:
        assert len(fill_with_small_segments(pair)) == 8
        large = handed_over(pair, 6, value=5.0)
        assert large.eq(5).all()
        stats = pair[0].stats()
        assert stats.total_bytes <= 8 * MB
        assert (stats.segments, stats.given_back) == (3, 6), "as few as make room"


def results_that_are_kept_stay_as_they_are() -> None:
    """Results in every other segment are kept; the others make room for a large one."""
    with connected(cap=8 * MB) as pair:
        kept = fill_with_small_segments(pair)[::2]
        large = handed_over(pair, 4, value=5.0)
        assert [float(result.mean()) for result in kept] == [0, 2, 4, 6]
        assert large.eq(5).all()


def what_is_on_its_way_keeps_its_segment() -> None:
    with connected(cap=4 * MB) as (arena, view):
        packets = [arena.pack(image(1, value=float(i))) for i in range(4)]
        with pytest.raises(ArenaFullError):
            arena.start(image(2))
        assert arena.trim() == 0
        assert [float(view.unpack(packet).mean()) for packet in packets] == [0, 1, 2, 3]


def nothing_is_given_back_in_vain() -> None:
    with connected(cap=8 * MB) as pair:
        kept = fill_with_small_segments(pair)[:5]
        with pytest.raises(ArenaFullError, match="in use"):
            pair[0].start(image(4))
        assert pair[0].stats().given_back == 0
        assert len(kept) == 5


def the_largest_of_several_leaves_gets_its_room_first() -> None:
    with connected(cap=10 * MB, segment_bytes=5 * MB) as (arena, view):
        arena.reserve(10 * MB)
        assert arena.stats().segments == 2
        for leaves in ([4, 6], [6, 4]):
            got = view.unpack(arena.pack([image(size, value=size) for size in leaves]))
            assert [float(leaf.mean()) for leaf in got] == leaves
            del got


def a_system_with_little_left_gets_segments_back() -> None:
    """Four small segments are there, and the system has one megabyte left besides."""
    with connected(cap=16 * MB) as pair:
        fill_with_small_segments(pair, 4)
        arena = pair[0]

        def left() -> MemoryLeft:
            return MemoryLeft(5 * MB - arena._blocks._allocator.total_bytes, "a limit")

        with mock.patch.object(segment, "memory_left", left):
            assert handed_over(pair, 3).sum() == 3 * MB / 4
        assert (arena.stats().given_back, arena.stats().total_bytes) == (3, 4 * MB)


def a_system_with_less_than_a_step_left_gives_what_is_needed() -> None:
    with (
        connected(cap=64 * MB, segment_bytes=8 * MB, initial_bytes=0) as pair,
        mock.patch.object(segment, "memory_left", return_value=MemoryLeft(3 * MB, "a limit")),
    ):
        kept = handed_over(pair, 2)
        assert pair[0].stats().total_bytes == 2 * MB
        assert kept.sum() == 2 * MB / 4


# Giving everything back ---------------------------------------------------------


def both_ends_unmap_what_is_given_back() -> None:
    with connected(cap=8 * MB) as pair:
        arena, view = pair
        kept = fill_with_small_segments(pair)[3]
        assert arena.trim() == 7 * MB
        view.refresh()
        assert len(mappings()) == 2, "one at each end"
        assert resident() <= 2 * MB
        assert kept.eq(3).all()
        del kept
        assert arena.trim() == MB
        assert (arena.stats().segments, arena.stats().total_bytes) == (0, 0)
        view.refresh()
        assert mappings() == []
        assert handed_over(pair, 1, value=7.0).eq(7).all()


def the_pages_are_the_systems_at_once() -> None:
    """Whatever the consumer does."""
    with connected(cap=8 * MB) as pair:
        fill_with_small_segments(pair)
        assert pair[0].trim() == 8 * MB
        assert len(mappings()) == 8, "the consumer has not looked"
        assert resident() == 0


def a_segment_that_came_and_went_is_never_mapped() -> None:
    with connected(cap=8 * MB) as pair:
        arena, view = pair
        with mock.patch.object(Segment, "attach", wraps=Segment.attach) as attach:
            arena.discard(arena.pack(image(4)))
            assert arena.trim() == 5 * MB
            view.refresh()
        attach.assert_not_called()
        assert mappings() == []


def a_consumer_that_unpacks_something_else_unmaps_as_well() -> None:
    with connected(cap=8 * MB) as pair:
        fill_with_small_segments(pair, 4)
        assert pair[0].trim() == 4 * MB
        assert pair[1].unpack(pair[0].pack("no bytes")) == "no bytes"
        assert mappings() == []


def any_order_of_results_and_trims_is_right() -> None:
    """300 outputs of 20 to 600 KB, kept for a while, with trims in between."""
    chance = random.Random(11)
    with connected(cap=3 * MB, segment_bytes=MB // 4) as pair:
        arena, view = pair
        kept: list[tuple[float, torch.Tensor]] = []
        for number in range(300):
            kept.append((number, view.unpack(_packed(arena, kept, chance, number))))
            if chance.random() < 0.2:
                arena.trim()
            while kept and chance.random() < 0.5:
                value, result = kept.pop(chance.randrange(len(kept)))
                assert float(result[0]) == float(result[-1]) == value
                del result
        assert arena.stats().total_bytes <= 3 * MB
        assert arena.stats().given_back > 20


def _packed(arena: Arena, kept: list[Any], chance: random.Random, value: float) -> Packet:
    """Pack an output; let results go, one after the other, until there is room."""
    output = image(chance.choice([0.02, 0.1, 0.2, 0.6]), value)
    while True:
        try:
            return arena.pack(output)
        except ArenaFullError:
            kept.pop(chance.randrange(len(kept)))


def a_consumer_that_takes_no_notice_holds_nobody_up() -> None:
    """The socket fills up; segments are kept then, until the consumer looks."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least that the system has
    with ours, theirs, Arena(CpuPlatform(), cap=4 * MB, segment_bytes=MB) as arena:
        arena.connect(ours)
        with ArenaView.connect(theirs) as view:
            given_back = [_reserved_and_trimmed(arena, view) for _ in range(100)]
            assert given_back[0] == MB
            assert given_back[-1] == 0
            view.refresh()
            assert _reserved_and_trimmed(arena, view) == MB


def _reserved_and_trimmed(arena: Arena, view: ArenaView) -> int:
    found: list[int] = []

    def run() -> None:
        arena.reserve(MB)
        found.append(arena.trim())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(5)
    waits = thread.is_alive()
    while thread.is_alive():
        view.refresh()
    assert not waits, "it waits for the consumer"
    return found[0]


TESTS = [
    small_segments_do_not_starve_a_large_leaf, results_that_are_kept_stay_as_they_are,
    what_is_on_its_way_keeps_its_segment, nothing_is_given_back_in_vain,
    the_largest_of_several_leaves_gets_its_room_first,
    a_system_with_little_left_gets_segments_back,
    a_system_with_less_than_a_step_left_gives_what_is_needed,
    both_ends_unmap_what_is_given_back, the_pages_are_the_systems_at_once,
    a_segment_that_came_and_went_is_never_mapped,
    a_consumer_that_unpacks_something_else_unmaps_as_well,
    any_order_of_results_and_trims_is_right, a_consumer_that_takes_no_notice_holds_nobody_up,
]  # fmt: skip


@pytest.mark.parametrize("test", TESTS, ids=lambda f: f.__name__)
def test_giving_back(test: Callable[[], None]) -> None:
    test()


# Planted bugs -------------------------------------------------------------------


def _all_segments(self: Allocator) -> dict[int, int]:
    return dict(self.segment_sizes)


def _removed_anyhow(self: Allocator, number: int) -> None:
    self._used = {key: size for key, size in self._used.items() if key[0] != number}
    for start, size in [(a, s) for (n, a), s in self._starting.items() if n == number]:
        self._remove_free(Block(number, start, size))
    del self.segment_sizes[number]


def _all_that_is_free(self: Segments, nbytes: int) -> bool:
    if nbytes > 0:
        self.give_back_free()
    return nbytes > 0


def _mapped_at_once(self: MappedSegments, notice: Any) -> None:
    _enter(self, notice)
    for number in list(self._descriptors):
        self._map(number)


_enter = MappedSegments._enter

PLANTED: dict[str, tuple[Callable[[], None], Any, str, Any]] = {
    "an arena keeps its segments": (
        small_segments_do_not_starve_a_large_leaf, Segments, "_make_room", lambda *_: False),
    "more than is needed is given back": (
        small_segments_do_not_starve_a_large_leaf, Segments, "_make_room", _all_that_is_free),
    "it is given back in vain": (
        nothing_is_given_back_in_vain, Segments, "_make_room", _all_that_is_free),
    "leaves get their room in their own order": (
        the_largest_of_several_leaves_gets_its_room_first, "omni_platforms.shm.blocks", "sorted",
        lambda positions, key, reverse: positions),
    "the consumer keeps its mappings": (
        both_ends_unmap_what_is_given_back, MappedSegments, "take_in", lambda self: None),
    "only mappings are let go, and the pages with the last of them": (
        the_pages_are_the_systems_at_once, Segment, "give_up", Segment.close),
    "the consumer maps a segment when it hears of it": (
        a_segment_that_came_and_went_is_never_mapped, MappedSegments, "_enter", _mapped_at_once),
    "a notice waits for the consumer": (
        a_consumer_that_takes_no_notice_holds_nobody_up, Sender, "would_block",
        lambda self: False),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_each_planted_bug_is_seen(bug: str) -> None:
    test, owner, name, wrong = PLANTED[bug]
    patch = (
        mock.patch(f"{owner}.{name}", wrong, create=True)
        if isinstance(owner, str)
        else mock.patch.object(owner, name, wrong)
    )
    with patch, pytest.raises((AssertionError, ArenaFullError)):
        test()


@pytest.mark.parametrize(
    "test", [results_that_are_kept_stay_as_they_are, any_order_of_results_and_trims_is_right]
)
def test_planted_segments_are_given_back_while_somebody_has_a_view(
    test: Callable[[], None],
) -> None:
    with (
        mock.patch.object(Allocator, "whole_free_segments", _all_segments),
        mock.patch.object(Allocator, "remove_segment", _removed_anyhow),
        pytest.raises((AssertionError, ValueError)),
    ):
        test()


# Devices ------------------------------------------------------------------------


def test_a_capture_is_left_alone(sim: Simulation) -> None:
    with connected(sim.platform, cap=4 * MB) as (arena, _):
        graph = torch.accelerator.Graph()
        with torch.Stream(device="sim"), graph, pytest.raises(CaptureError):
            arena.trim()
        given_back: list[int] = []
        other = threading.Thread(target=lambda: given_back.append(arena.trim()))
        with arena.capture_guard():
            other.start()
            with pytest.raises(CaptureError, match="holds capture_guard"):
                arena.trim()
            assert other.is_alive()
            assert arena.stats().segments == 1
        other.join(10)
        assert given_back == [MB]


@contextmanager
def stubborn_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Pair, list[bool]]]:
    """A device that registers, and refuses to unregister while the list is not empty."""
    refuses: list[bool] = []

    class Stubborn(CpuPlatform):
        def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
            return RegisteredHostMemory(buffer, unregister)

    def unregister() -> None:
        if refuses:
            raise HostRegistrationError("the device is busy")

    monkeypatch.setattr(registered, "_is_pinned", lambda tensor: True)
    with connected(Stubborn(), cap=8 * MB) as pair:
        yield pair, refuses


def test_a_segment_that_cannot_be_unregistered_is_kept_and_staged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with stubborn_device(monkeypatch) as (pair, refuses):
        arena = pair[0]
        assert arena.stats().registered
        fill_with_small_segments(pair, 8)
        refuses.append(True)
        with pytest.raises(HostRegistrationError, match="busy"):
            arena.trim()
        with pytest.raises(ArenaFullError):
            arena.start(image(6))
        assert "kept, and staged" in caplog.text
        assert (arena.stats().segments, arena.stats().registered) == (8, False)
        assert handed_over(pair, 1, value=3.0).eq(3).all()
        refuses.clear()
        assert arena.trim() == 8 * MB


def test_a_consumer_that_is_gone_is_told_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, Arena(CpuPlatform(), cap=8 * MB, segment_bytes=MB) as arena:
        arena.connect(ours)
        theirs.close()
        assert arena.trim() == MB


def test_an_arena_that_has_given_back_before_it_has_a_consumer() -> None:
    """Its segments are numbered with holes, and more than one message holds."""
    ours, theirs = socket.socketpair()
    with ours, theirs, Arena(CpuPlatform(), cap=8 * MB, segment_bytes=MB) as arena:
        packets = [arena.pack(image(1, value=float(i))) for i in range(6)]
        for number in (0, 2, 3):
            arena.discard(packets[number])
        assert arena.trim() == 3 * MB
        with mock.patch.object(growth, "MOST", 2):
            arena.connect(ours)
        with ArenaView.connect(theirs) as view:
            for number in (1, 5, 4):
                assert view.unpack(packets[number]).eq(number).all()


def test_as_few_as_will_do() -> None:
    sizes = {0: 1, 1: 4, 2: 2, 3: 8}
    wanted = {1: [0], 2: [2], 3: [1], 8: [3], 9: [3, 0], 11: [3, 1], 15: [3, 1, 2, 0]}
    assert {nbytes: list(fewest(sizes, nbytes)) for nbytes in wanted} == wanted
