"""The common async path of engines, as a process: what `pipeline` compares ours with.

The worker launches a forward and a copy of its output on a side stream, into pinned memory that is
allocated for it. A thread of its own waits for the copy and copies on into a fresh segment of
`multiprocessing.shared_memory`. The consumer copies it out of there and removes the segment.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
from multiprocessing.connection import Connection
from types import TracebackType
from typing import NamedTuple

import torch

from omni_platforms.bench.common_path import CommonPath, Copy
from omni_platforms.bench.forwards import Forward, Request
from omni_platforms.bench.segments import from_segment, to_fresh_segment
from omni_platforms.errors import BenchError
from omni_platforms.platform.selection import current_platform

_ANSWER_S = 120.0
_END_S = 10.0


class Ready(NamedTuple):
    """What the worker says about one output: where it is, and how many bytes it has."""

    segment: str
    nbytes: int


class CommonWorker:
    """The process, and the consumer's side of it. Requests are answered in order.

    Making one blocks until the process is up. Use it as a context manager. Not for several threads
    at once.
    """

    def __init__(self, device: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._channel, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, device), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def send(self, request: Request) -> None:
        """Give the worker one more request. Does not wait for it."""
        self._channel.send(request)

    def receive(self) -> torch.Tensor:
        """Block until the next output is here; return a private copy of it.

        Raises `BenchError` when the worker has failed.
        """
        ready = self._receive()
        return from_segment(ready.segment, ready.nbytes)

    def _receive(self) -> Ready:
        try:
            if not self._channel.poll(_ANSWER_S):
                raise BenchError(
                    f"the worker of the common async path has not answered for {_ANSWER_S:.0f} s"
                )
            answer: Ready | BaseException = self._channel.recv()
        except EOFError:
            raise BenchError(
                "the worker of the common async path died; its last words are above"
            ) from None
        if isinstance(answer, BaseException):
            raise BenchError("the worker of the common async path failed") from answer
        return answer

    def __enter__(self) -> CommonWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()  # the worker ends at the end of its channel
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(channel: Connection, device_index: int) -> None:
    """Run in the worker process, until the channel ends."""
    platform = current_platform()
    device = platform.device(device_index)
    platform.set_device(device)
    forward, path = Forward(platform, device), CommonPath(platform, device)
    outputs: queue.SimpleQueue[Copy | None] = queue.SimpleQueue()
    sender = threading.Thread(target=_send_outputs, args=(outputs, channel))
    sender.start()
    channel.send(Ready("", 0))
    try:
        while True:
            outputs.put(path.start(forward(channel.recv())))
    except (EOFError, ConnectionError):  # the consumer has all that it wanted
        pass
    finally:
        outputs.put(None)
        sender.join()


def _send_outputs(outputs: queue.SimpleQueue[Copy | None], channel: Connection) -> None:
    """Pack what the device has copied, in order; on the worker's other thread."""
    try:
        for copy in iter(outputs.get, None):
            channel.send(_packed(copy))
    except ConnectionError:  # the consumer has gone, and nobody is there to be told
        pass
    except Exception as error:  # noqa: BLE001 - the consumer raises it
        channel.send(error)


def _packed(copy: Copy) -> Ready:
    host = copy.wait()
    return Ready(to_fresh_segment(host), host.nbytes)
