"""The common ways of engines, in a process: what `pipeline` compares ours with.

The async path: the worker launches a forward and a copy of its output on a side stream, into pinned
memory that is allocated for it. A thread of its own waits for the copy and copies on into a fresh
segment of `multiprocessing.shared_memory`. The consumer copies it out of there and removes it.

The queue: the worker copies the output to the host with a blocking call, and puts the tensor into a
queue of `torch.multiprocessing`, whose consumer maps the memory that torch shares it through.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple

import torch
import torch.multiprocessing

from omni_platforms.bench.common_path import CommonPath, Copy, blocking_copy
from omni_platforms.bench.forwards import Forward, Request
from omni_platforms.bench.segments import from_segment, to_fresh_segment
from omni_platforms.errors import BenchError
from omni_platforms.platform.selection import current_platform

QUEUE_WAY = "queue"
"""The way of a request whose output shall come through torch's queue."""

_ANSWER_S = 120.0
_LOOK_S = 1.0  # so often it is asked whether the worker lives while nothing comes
_END_S = 10.0


class Ready(NamedTuple):
    """What the worker says about one output: where it is, and how many bytes it has."""

    segment: str
    nbytes: int


class CommonWorker:
    """The process, and the consumer's side of it. Requests are answered in order.

    Making one blocks until the process is up. Use it as a context manager. Not for several threads
    at once. What waits for an output raises `BenchError` when the worker has failed.
    """

    def __init__(self, device: int) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._channel, theirs = context.Pipe()
        self._queue = context.Queue()
        self._process = context.Process(
            target=_serve, args=(theirs, self._queue, device), daemon=True
        )
        self._process.start()
        theirs.close()
        self._receive()

    def send(self, request: Request) -> None:
        """Give the worker one more request. Does not wait for it."""
        self._channel.send(request)

    def receive(self) -> torch.Tensor:
        """Block until the next output is here; return a private copy of it."""
        ready = self._receive()
        return from_segment(ready.segment, ready.nbytes)

    def receive_queued(self) -> torch.Tensor:
        """Block until the next output of `QUEUE_WAY` is here; return it as torch mapped it."""
        limit = time.monotonic() + _ANSWER_S
        while True:
            try:
                output: torch.Tensor = self._queue.get(timeout=_LOOK_S)
                return output
            except queue.Empty:
                if not self._process.is_alive():
                    raise _died() from None
                if time.monotonic() > limit:
                    raise _silent() from None

    def _receive(self) -> Ready:
        try:
            if not self._channel.poll(_ANSWER_S):
                raise _silent()
            answer: Ready | BaseException = self._channel.recv()
        except EOFError:
            raise _died() from None
        if isinstance(answer, BaseException):
            raise BenchError("the worker of the common ways failed") from answer
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
        self._queue.close()


def _died() -> BenchError:
    return BenchError("the worker of the common ways died; its last words are above")


def _silent() -> BenchError:
    return BenchError(f"the worker of the common ways has not answered for {_ANSWER_S:.0f} s")


def _serve(channel: Connection, queued: Any, device_index: int) -> None:
    """Run in the worker process, until the channel ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever measures hears of it, and ends this
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
            request = channel.recv()
            if request.way == QUEUE_WAY:
                queued.put(blocking_copy(forward(request)))
            else:
                outputs.put(path.start(forward(request)))
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
