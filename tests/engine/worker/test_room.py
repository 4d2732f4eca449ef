"""Room that comes back between a look and a wait is not missed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from omni_platforms.engine.worker.room import Room
from omni_platforms.errors import ArenaFullError, SegmentRefusedError


class FullArena:
    """An arena whose consumer lets go of `lent` blocks just before the question number `at`.

    As a real one, it takes in what has come back whenever it is asked anything.
    """

    def __init__(self, lent: int, at: int) -> None:
        self.lent, self.at, self.asked = lent, at, 0
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)

    def _take_in(self) -> None:
        self.asked += 1
        if self.asked == self.at:
            os.write(self._writing, b"x" * self.lent)
        try:
            self.lent -= len(os.read(self._reading, 100))
        except BlockingIOError:
            return

    def fileno(self) -> int:
        return self._reading

    def start(self, nest: Any, after: Any = None, name: str = "") -> str:
        self._take_in()
        if self.lent:
            raise ArenaFullError("no room")
        return "started"

    def stats(self) -> Any:
        self._take_in()
        return SimpleNamespace(used_bytes=self.lent)

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def closing() -> Iterator[list[Room]]:
    """Rooms to close: a worker keeps its own for as long as it lives."""
    rooms: list[Room] = []
    yield rooms
    for room in rooms:
        os.close(room._waking)
        os.close(room._wake)


@pytest.fixture(params=[1, 2, 3, 4])
def arena(request: pytest.FixtureRequest) -> Iterator[FullArena]:
    made = FullArena(lent=2, at=request.param)
    yield made
    made.close()


def test_blocks_that_come_back_at_any_moment_are_seen(
    arena: FullArena, closing: list[Room]
) -> None:
    room = Room(arena, block=True, timeout=0.05)  # type: ignore[arg-type]
    closing.append(room)
    if arena.at == 4:  # nobody asks a fourth time: they come while it waits
        os.write(arena._writing, b"xx")
    assert room.start("nest", None, lambda: True) == "started"


class LooksOnce(Room):
    """The mistake: what the question itself has taken in is not looked at again."""

    def start(self, nest: Any, gate: Any, wanted: Any, name: str = "") -> Any:
        try:
            return self._arena.start(nest)
        except ArenaFullError:
            if not self._arena.stats().used_bytes or not self._await_change(0.0):
                raise
            return self._arena.start(nest)


def test_planted_a_room_that_does_not_look_again(closing: list[Room]) -> None:
    arena = FullArena(lent=2, at=2)
    room = LooksOnce(arena, block=True, timeout=0.05)  # type: ignore[arg-type]
    closing.append(room)
    with pytest.raises(ArenaFullError):
        room.start("nest", None, lambda: True)
    arena.close()


def test_what_never_helps_is_not_waited_for(closing: list[Room]) -> None:
    arena = FullArena(lent=2, at=100)
    refused = ArenaFullError("full")
    refused.__cause__ = SegmentRefusedError("the machine is full")
    never = ArenaFullError("full")
    never.never_fits = True
    for error in (refused, never):
        room = Room(arena, block=True, timeout=60)  # type: ignore[arg-type]
        closing.append(room)

        def start(nest: Any, *_: Any, error: ArenaFullError = error) -> Any:
            raise error

        arena.start = start  # type: ignore[method-assign]
        with pytest.raises(ArenaFullError):
            room.start("nest", None, lambda: True)
    arena.close()
