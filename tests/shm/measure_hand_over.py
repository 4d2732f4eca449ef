"""Measure the hand-over of an output between two processes; run it as a module, it is no test.

    python -m tests.shm.measure_hand_over [rounds]

Two ways, in turn: through the arena, and as is common: the worker copies into a
fresh segment of `multiprocessing.shared_memory`, the consumer copies out of it
and unlinks it. The time runs in the worker from the complete host tensor to the
consumer's answer, which it gives when the result is there and every page of it
has been read.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import torch

from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, ArenaView

SIZES = {"12.6 MB": (1, 3, 1024, 1024), "154 MB": (49, 3, 512, 512)}
Message = tuple[str, Any]


def consume(segments: socket.socket, channel: Connection) -> None:
    """Answer each message when its output can be read."""
    view = ArenaView.connect(segments)
    for way, payload in iter(channel.recv, None):
        image = view.unpack(payload).numpy() if way == "arena" else _private_copy(*payload)
        channel.send(float(image.reshape(-1)[::1024].sum()))
        del image
    view.close()


def _private_copy(name: str, shape: tuple[int, ...]) -> Any:
    segment = SharedMemory(name=name)
    image = np.ndarray(shape, np.float32, segment.buf).copy()
    segment.close()
    segment.unlink()
    return image


def _common(image: torch.Tensor) -> Message:
    segment = SharedMemory(create=True, size=image.nbytes)
    np.copyto(np.ndarray(tuple(image.shape), np.float32, segment.buf), image.numpy())
    segment.close()
    return "common", (segment.name, tuple(image.shape))


def _timed(channel: Connection, image: torch.Tensor, way: Any) -> float:
    start = time.perf_counter()
    channel.send(way(image))
    answer = channel.recv()
    took = time.perf_counter() - start
    assert answer == float(image.reshape(-1)[::1024].numpy().sum())
    return took


def main(rounds: int = 15) -> None:
    """Print the medians and the least times of both ways, and their ratios."""
    ours, theirs = socket.socketpair()
    channel, their_channel = multiprocessing.get_context("spawn").Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=consume, args=(theirs, their_channel))
    process.start()
    with Arena(CpuPlatform(), cap=512 << 20, segment_bytes=512 << 20) as arena:
        arena.connect(ours)

        def through_arena(image: torch.Tensor) -> Message:
            return "arena", arena.pack(image).data

        for name, shape in SIZES.items():
            image = torch.randn(shape)
            times: dict[Any, list[float]] = {through_arena: [], _common: []}
            for _ in range(rounds + 2):
                for way, taken in times.items():
                    taken.append(_timed(channel, image, way))
            for word, of in (("median", statistics.median), ("least", min)):
                arena_s, common_s = (of(taken[2:]) for taken in times.values())
                print(
                    f"{name}, {word}: arena {arena_s * 1e3:.2f} ms, common {common_s * 1e3:.2f} "
                    f"ms, {common_s / arena_s:.1f} times as long"
                )
        channel.send(None)
        process.join()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
