"""The process that receives outputs: what runs in it."""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from omni_platforms.bench.check import Pattern
from omni_platforms.bench.segments import from_segment
from omni_platforms.errors import BenchError
from omni_platforms.shm import ArenaView

_ELEMENTS_A_PAGE = 1024  # of int32
_PIECE = 1 << 24  # elements: so few are read of it that torch does so on this thread


class Job(NamedTuple):
    """What the consumer is told before a clock starts: by which way which output will come."""

    way: str
    what: str
    nbytes: int
    seed: int


class Received(NamedTuple):
    """When the consumer had the value, and when it had read it, by `perf_counter`."""

    at_hand: float
    read: float


class Usage(NamedTuple):
    """What a process has used: page faults since its start, and bytes of memory now."""

    faults: int
    resident: int


def usage() -> Usage:
    """Return the calling process's usage."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(found.ru_minflt + found.ru_majflt, psutil.Process().memory_info().rss)


def read_pages(value: Tensor) -> None:
    """Read a word of every page of a contiguous int32 tensor on the host, on this thread."""
    for piece in torch.split(value.view(-1), _PIECE):
        int(piece[::_ELEMENTS_A_PAGE].sum())


def serve(segments: socket.socket, channel: Connection, queue: Any) -> None:
    """Receive outputs until `None` comes or the other end is gone. Runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever measures hears of it, and ends this
    torch.set_num_threads(1)  # threads that spin behind a check would disturb the next round
    view = ArenaView.connect(segments)
    ways: dict[str, Callable[[Job], Tensor]] = {
        "arena": lambda job: _from_arena(view, channel),
        "common": lambda job: from_segment(channel.recv(), job.nbytes),
        "queue": lambda job: queue.get(),
    }
    patterns: dict[int, Pattern] = {}
    try:
        for job in iter(channel.recv, None):
            channel.send(usage() if job == "usage" else _receive(job, ways, patterns, channel))
    except EOFError:
        return  # whoever measures is gone
    finally:
        view.close()


def _receive(
    job: Job,
    ways: dict[str, Callable[[Job], Tensor]],
    patterns: dict[int, Pattern],
    channel: Connection,
) -> Received | str:
    """Take one output, and return the times or what is wrong with it."""
    if job.nbytes not in patterns:
        patterns.clear()  # cases come one after the other
        patterns[job.nbytes] = Pattern(job.nbytes)
    channel.send("ready")
    value = ways[job.way](job)
    at_hand = perf_counter()
    read_pages(value)
    read = perf_counter()
    try:
        patterns[job.nbytes].check(value, job.seed, job.what)
    except BenchError as error:
        return str(error)
    return Received(at_hand, read)


def _from_arena(view: ArenaView, channel: Connection) -> Tensor:
    """Take an output whose packet comes with it, or ahead of it: then a second word follows."""
    ahead, packet = channel.recv()
    value: Tensor = view.unpack(packet)
    if ahead:
        channel.recv()
    return value
