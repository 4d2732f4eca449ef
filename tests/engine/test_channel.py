"""A channel keeps messages whole and in order, whoever writes and however it ends."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from omni_platforms.engine import channel as module
from omni_platforms.engine.channel import FRAME_BYTES, Channel, pair
from omni_platforms.engine.messages import AsyncOutput, Execute, Kind, Message, Stop
from omni_platforms.engine.payload import Blob, Pickled
from omni_platforms.errors import ChannelBrokenError, ChannelClosedError, CorruptMessageError


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = (Channel(end) for end in pair())
    yield ours, theirs
    ours.close()
    theirs.close()


def made(name: str, nbytes: int = 0) -> AsyncOutput:
    return AsyncOutput(Kind.OUTPUT_READY, name, packet=Blob(os.urandom(nbytes)))


def blob(message: Message) -> bytes:
    assert isinstance(message, AsyncOutput)
    assert message.packet is not None
    return bytes(message.packet.data)


@pytest.mark.parametrize("nbytes", [0, 1, FRAME_BYTES - 200, FRAME_BYTES, 3 * FRAME_BYTES + 7])
def test_messages_of_any_size_arrive(ends: tuple[Channel, Channel], nbytes: int) -> None:
    ours, theirs = ends
    sent = made("x", nbytes)
    ours.send(sent)
    assert theirs.receive(5) == sent


def test_two_writers_and_one_reader_lose_and_mix_nothing(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    count = 3000

    def write(name: str) -> None:
        sizes = random.Random(name)
        for i in range(count):
            size = int(FRAME_BYTES * 2.5 ** sizes.uniform(-8, 1.2))
            ours.send(
                AsyncOutput(Kind.OUTPUT_READY, f"{name}{i}", packet=Blob(bytes([i % 251]) * size))
            )

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(2 * count):
        message = theirs.receive(30)
        assert isinstance(message, AsyncOutput)
        number = int(message.id[1:])
        seen[message.id[0]].append(number)
        data = blob(message)
        assert data.count(number % 251) == len(data)
    assert seen == {"a": list(range(count)), "b": list(range(count))}, "each in its own order"
    for writer in writers:
        writer.join()


def _overtaken(ours: Channel, theirs: Channel) -> list[str]:
    """Send a long message that nobody reads yet, then a short one; return how they arrive."""
    long = threading.Thread(target=ours.send, args=(made("long", 4 << 20),))
    long.start()
    select.select([theirs.fileno()], [], [], 10)
    short = threading.Thread(target=ours.send, args=(made("short"),))
    short.start()
    deadline = time.monotonic() + 10
    while not ours._door.locked() and short.is_alive() and time.monotonic() < deadline:
        os.sched_yield()
    arrived = [theirs.receive(30), theirs.receive(30)]
    long.join()
    short.join()
    return [message.id for message in arrived if isinstance(message, AsyncOutput)]


def test_a_short_message_passes_a_long_one(ends: tuple[Channel, Channel]) -> None:
    assert _overtaken(*ends) == ["short", "long"]


def test_planted_messages_of_one_frame_hold_the_short_one_up(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES", 8 << 20)
    assert _overtaken(*ends) == ["long", "short"]


def test_ctrl_c_ends_a_message_and_not_the_channel(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    write, calls = Channel._write, iter(range(100))

    def interrupted(self: Channel, number: int, flags: int, data: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        write(self, number, flags, data)

    monkeypatch.setattr(Channel, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.send(made("interrupted", 5 * FRAME_BYTES))
    after = made("after", 2 * FRAME_BYTES)
    ours.send(after)
    assert theirs.receive(5) == after
    assert not theirs._partial


def test_one_bad_message_costs_only_itself(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    bad = b"".join(bytes(piece) for piece in module.encode(Execute("bad", Pickled(b""))))
    ours._write(7, module._LAST, bad[:-1] + b"\xff")
    ours.send(Stop(1.0))
    with pytest.raises(CorruptMessageError) as caught:
        theirs.receive(5)
    assert caught.value.message_id == "bad"
    assert theirs.receive(5) == Stop(1.0)


def test_bytes_that_are_no_frames_break_the_channel() -> None:
    ours, theirs = pair()
    with ours:
        reader = Channel(theirs)
        ours.sendall(b"some library printed this to the wrong descriptor\n")
        with pytest.raises(ChannelBrokenError, match="Something else writes to it"):
            reader.receive(5)
        reader.close()


def test_the_end_comes_after_everything_that_was_sent(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    for i in range(5):
        ours.send(made(str(i), 1000))
    ours.close()
    for i in range(5):
        message = theirs.receive(5)
        assert isinstance(message, AsyncOutput)
        assert message.id == str(i)
    for _ in range(2):
        with pytest.raises(ChannelClosedError, match=r"gone$"):
            theirs.receive(5)
    with pytest.raises(ChannelClosedError, match="gone"):
        theirs.send(Stop(1.0))
    with pytest.raises(ChannelClosedError, match="this end"):
        ours.send(Stop(1.0))


def test_the_end_in_the_middle_of_a_message_is_said(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours._write(0, 0, b"the first frame of several")
    ours.close()
    with pytest.raises(ChannelClosedError, match="middle of a message"):
        theirs.receive(5)


def test_a_timeout_and_a_close_end_a_wait(ends: tuple[Channel, Channel]) -> None:
    _, theirs = ends
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        theirs.receive(0.05)
    assert 0.04 < time.monotonic() - start < 2
    failed: list[Exception] = []

    def wait() -> None:
        try:
            theirs.receive()
        except ChannelClosedError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    theirs.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert failed


HOLDER = """
import os, sys
if os.fork() == 0:
    os.read(int(sys.argv[1]), 1)  # a child that keeps the socket open
    os._exit(0)
os.write(int(sys.argv[2]), b"up")
os.read(int(sys.argv[1]), 1)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfds are Linux's")
def test_a_dead_process_is_seen_although_its_child_keeps_its_end_open() -> None:
    ours, theirs = pair()
    (hold, let_go), (up, tell) = os.pipe(), os.pipe()
    command = [sys.executable, "-c", HOLDER, str(hold), str(tell)]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno(), hold, tell])
    death = os.pidfd_open(process.pid)
    try:
        theirs.close()
        assert os.read(up, 2) == b"up"
        process.send_signal(signal.SIGKILL)
        process.wait()
        blind = Channel(ours)
        with pytest.raises(TimeoutError):
            blind.receive(0.1)  # what a channel without `death` sees
        seeing = Channel(socket.socket(fileno=os.dup(ours.fileno())), death)
        with pytest.raises(ChannelClosedError):
            seeing.receive(5)
        seeing.close()
        blind.close()
    finally:
        for descriptor in (let_go, hold, up, tell, death):
            os.close(descriptor)
