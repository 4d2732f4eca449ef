"""What N workers cost the driver: `python -m tests.engine.ray.measure_driver 1000`. A simulation.

The workers are one other process that answers every request at once: what is measured is the
driver's own side (ledger, dispatch, two threads and a socket a worker), as CPU time of this process
for each request, beside its threads, descriptors and memory.
"""

from __future__ import annotations

import os
import pickle
import resource
import selectors
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import psutil

from omni_platforms.engine.channel import Channel, pair
from omni_platforms.engine.elastic import ElasticEngine
from omni_platforms.engine.interface import Executor
from omni_platforms.engine.messages import AsyncOutput, Execute, Kind, Message, Started
from omni_platforms.engine.payload import Blob
from omni_platforms.errors import ChannelClosedError
from tests.engine.fakes import FakeWorker

ROUNDS = 7
A_ROUND = 4000


class Remote(FakeWorker):
    """The driver's end alone."""

    def __init__(self, rank: int, ours: Any) -> None:
        super().__init__(rank)
        self.channel.close()
        self.theirs.close()
        self.channel = Channel(ours)


def answer(ends: list[Any]) -> None:
    """Be all workers: answer each request with COMPUTE_DONE and its output."""
    selector = selectors.DefaultSelector()
    packet = Blob(pickle.dumps(b"x" * 200))
    for end in ends:
        channel = Channel(end)
        selector.register(end, selectors.EVENT_READ, channel)
    while True:
        for key, _ in selector.select():
            for message in _all_that_came(key.data):
                if isinstance(message, Execute):
                    key.data.send(AsyncOutput(Kind.COMPUTE_DONE, message.id))
                    key.data.send(AsyncOutput(Kind.OUTPUT_READY, message.id, packet=packet))


def _all_that_came(channel: Channel) -> Iterator[Message]:
    try:
        while True:
            yield channel.receive(0.0)
    except TimeoutError:
        return
    except ChannelClosedError:  # the driver has ended
        os._exit(0)


def cpu_of_a_request(executor: Executor, ahead: int) -> float:
    """Return microseconds of this process's CPU time for each request."""
    began = time.process_time()
    waiting: deque[Any] = deque()
    for _ in range(A_ROUND):
        future = executor.submit("request")
        waiting.append(executor.wait_output_ready(future.async_output_id))
        if len(waiting) > ahead:
            waiting.popleft().result(60)
    while waiting:
        waiting.popleft().result(60)
    return (time.process_time() - began) / A_ROUND * 1e6


def main(count: int) -> None:
    """Print one line."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pairs = [pair() for _ in range(count)]
    workers = os.fork()
    if workers == 0:
        for ours, _ in pairs:
            ours.close()
        answer([theirs for _, theirs in pairs])
    for _, theirs in pairs:
        theirs.close()
    before = psutil.Process().memory_info().rss, len(os.listdir("/proc/self/fd"))
    remote: list[Any] = [Remote(rank, ours) for rank, (ours, _) in enumerate(pairs)]
    executor = Executor(
        ElasticEngine(
            remote,
            [Started() for _ in remote],
            window=2,
            lockstep=False,
            output_rank=0,
            output_timeout=60.0,
        )
    )
    cpu_of_a_request(executor, 64)
    costs = [cpu_of_a_request(executor, 64) for _ in range(ROUNDS)]
    rss = psutil.Process().memory_info().rss - before[0]
    print(
        f"{count} workers: {statistics.median(costs):.0f} us of the driver's CPU a request "
        f"({min(costs):.0f} to {max(costs):.0f}), {threading.active_count()} threads, "
        f"{len(os.listdir('/proc/self/fd'))} descriptors, {rss / count / 1024:.0f} KiB a worker"
    )
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
