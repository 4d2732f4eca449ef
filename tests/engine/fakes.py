"""Workers without a process: the test is the worker, and says and hears every message itself."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from omni_platforms.engine import MultiprocExecutor
from omni_platforms.engine.channel import Channel, pair
from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import (
    AsyncOutput,
    Call,
    Ended,
    Execute,
    ExecuteBatch,
    Kind,
    Message,
    Started,
)
from omni_platforms.engine.payload import Blob, Pickled
from omni_platforms.errors import CorruptPacketError, OmniError

PATIENCE = 20.0
M = TypeVar("M", bound=Message)
Pair = tuple[MultiprocExecutor, "FakeWorker"]


class FakeView:
    """Unpacks pickles; remembers what was thrown away."""

    unpacked_count = unpacked_bytes = 0

    def __init__(self) -> None:
        self.unpacked: list[Any] = []
        self.discarded: list[Any] = []
        self.refreshed = 0

    def unpack(self, packet: Any) -> Any:
        if bytes(packet) == b"damaged":
            error = CorruptPacketError("the checksum is wrong")
            error.untouched = True
            raise error
        self.unpacked.append(pickle.loads(packet))
        return self.unpacked[-1]

    def discard(self, packet: Any) -> None:
        self.discarded.append(pickle.loads(packet))

    def refresh(self) -> None:
        self.refreshed += 1

    def close(self) -> None:
        pass


class FakeWorker:
    """Stands for a `WorkerProcess` at one end, and is the worker at the other."""

    exit_seen_s = 1.0

    def __init__(self, rank: int = 0) -> None:
        ours, theirs = pair()
        self.rank, self.name, self.pid = rank, f"worker {rank}", 100 + rank
        self.channel, self.theirs = Channel(ours), Channel(theirs)
        self.view = FakeView()
        self.how = "killed by SIGKILL"
        self._dead = threading.Event()

    # As a process ---------------------------------------------------------------

    def is_alive(self) -> bool:
        return not self._dead.is_set()

    def state(self) -> str:
        return "running" if self.is_alive() else self.how

    def printed_note(self) -> str:
        return " What it printed last: a word"

    def wait_exit(self, timeout: float | None = None) -> bool:
        return self._dead.wait(timeout)

    def terminate(self) -> None:
        self.die()

    def ask_to_stop(self, timeout: float) -> None:
        raise AssertionError("the crew asks in its place among other messages")

    def send_kill(self) -> None:
        self.die()

    def kill(self) -> bool:
        self.die()
        return True

    def close(self) -> None:
        self.channel.close()

    # As a worker ----------------------------------------------------------------

    def die(self) -> None:
        self._dead.set()
        self.theirs.close()

    def hear(self, kind: type[M]) -> M:
        message = self.theirs.receive(PATIENCE)
        assert isinstance(message, kind), message
        return message

    def hears_nothing(self) -> bool:
        """Whether nothing is to be read, once everything that was put has been sent."""
        try:
            self.theirs.receive(0.02)
        except TimeoutError:
            return True
        return False

    def say(self, kind: Kind, name: str, **what: Any) -> None:
        self.theirs.send(AsyncOutput(kind, name, **what))

    def begin(self) -> str:
        """Hear a request; return its id."""
        return self.hear(Execute).id

    def begin_batch(self) -> ExecuteBatch:
        return self.hear(ExecuteBatch)

    def computed(self, name: str, error: BaseException | None = None) -> None:
        self.say(Kind.COMPUTE_DONE, name, error=record(error))

    def output(self, name: str, value: Any = None, error: BaseException | None = None) -> None:
        packet = Blob(pickle.dumps(value))
        self.say(Kind.OUTPUT_READY, name, packet=packet, error=record(error))

    def answer(self, value: Any = None, error: BaseException | None = None) -> Call:
        """Hear a call, and answer it."""
        call = self.hear(Call)
        self.say(Kind.RPC_RESULT, call.id, result=Pickled.of(value), error=record(error))
        return call

    def say_bytes(self, data: bytes) -> None:
        """Send one message of these bytes, in a frame that is whole."""
        self.theirs._write(1 << 20, 1, data)

    def end(self) -> None:
        self.theirs.send(Ended())
        self.how = "exit status 0"
        self.die()


def record(error: BaseException | None) -> ErrorRecord | None:
    return None if error is None else ErrorRecord.of(error)


@contextmanager
def executor_of(
    monkeypatch: Any, num_workers: int = 1, **options: Any
) -> Iterator[tuple[MultiprocExecutor, list[FakeWorker]]]:
    """A real executor with workers that are fakes."""
    workers = [FakeWorker(rank) for rank in range(num_workers)]
    monkeypatch.setattr(
        "omni_platforms.engine.executor.start_processes",
        lambda *_: (workers, [Started() for _ in workers]),
    )
    options.setdefault("output_timeout", PATIENCE)
    executor = MultiprocExecutor("nobody:Worker", num_workers, **options)
    try:
        yield executor, workers
    finally:
        executor.shutdown(0.0)
        crew = executor._engine.crew
        for served in (*crew.pumps.values(), *crew.senders.values()):
            served.thread.join(PATIENCE)
            assert not served.thread.is_alive()
        for worker in workers:
            worker.theirs.close()


def dropping(executor: MultiprocExecutor, name: str) -> Future[bool]:
    """Drop from a thread of its own; return what the call comes to."""
    future: Future[bool] = Future()
    drop = executor.drop_output

    def run() -> None:
        try:
            future.set_result(drop(name))
        except OmniError as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.001)
