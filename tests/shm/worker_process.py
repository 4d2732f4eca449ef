"""Processes that the tests of `test_processes.py` start with the "spawn" method."""

from __future__ import annotations

import os
import socket
from multiprocessing.connection import Connection
from typing import Any

import torch

from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, ArenaView
from tests.outputs.test_nest import Pair, make_tensor

MB = 1 << 20


def nest() -> Any:
    """Return what worker and parent both can make, to be compared."""
    leaves = [make_tensor(torch.bool, "view", 2), None, "text"]
    return Pair({"a": make_tensor(torch.bfloat16, "step", 1)}, leaves)


def work(segments: Any, commands: Connection) -> None:
    """Own an arena, and do what the parent asks, until it asks for nothing more."""
    with Arena(CpuPlatform(), cap=64 * MB, segment_bytes=4 * MB) as arena:
        arena.connect(segments)
        segments.close()
        while (command := commands.recv()) is not None:
            commands.send(_answer(arena, *command))


def _answer(arena: Arena, what: str, *args: Any) -> Any:
    if what == "nest":
        return arena.pack(nest()).data
    if what == "fill":
        value, elements, copies = args
        return arena.pack([torch.full((elements,), value) for _ in range(copies)]).data
    if what == "wait":
        return arena.wait_for_returns(args[0])
    if what == "stats":
        return arena.stats()
    if what == "descriptors":
        return sorted(os.listdir("/proc/self/fd"))
    raise ValueError(what)


def consume(segments: socket.socket, packets: Connection) -> None:
    """Be a consumer: unpack what comes, keep it, and report its sums, until told to end."""
    view = ArenaView.connect(segments)
    segments.close()
    kept = []
    while (data := packets.recv()) is not None:
        if data == "let go":
            kept.clear()
            packets.send(True)
            continue
        kept.append(view.unpack(data))
        packets.send([float(leaf.sum()) for leaf in kept[-1]])
    os._exit(0)  # with results alive, and nothing closed
