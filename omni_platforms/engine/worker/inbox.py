"""The reader: takes the parent's messages, and answers at once what must not wait for a forward."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import (
    DESCRIBE,
    Call,
    Drop,
    Execute,
    ExecuteBatch,
    Kind,
    PreviewTaken,
    Stop,
    Unreadable,
    member_id,
)
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.engine.worker.room import Room
from omni_platforms.engine.worker.work import WorkTable
from omni_platforms.errors import ChannelBrokenError, ChannelClosedError, CorruptMessageError


@dataclass(frozen=True)
class Damaged:
    """A message of which only the start could be read, in its place among the others."""

    kind: int
    id: str
    error: CorruptMessageError


Task = Execute | ExecuteBatch | Call | Stop | Damaged


class Inbox:
    """What the main thread has to do, in the order in which it came."""

    def __init__(self, channel: Channel, table: WorkTable, room: Room, reporter: Reporter) -> None:
        self._channel = channel
        self._table = table
        self._room = room
        self._reporter = reporter
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._idle = False

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._run, name="omni-reader", daemon=True).start()

    def next(self) -> Task:
        """Return the next task; block while there is none."""
        self._idle = True
        task = self._tasks.get()
        self._idle = False
        return task

    def computed(self) -> None:
        """Note that the main thread has only an output to hand over, before the next task."""
        self._idle = True

    def main_is_idle(self) -> bool:
        """Whether the main thread has nothing to compute. Does not block."""
        return self._idle and self._tasks.empty()

    def _run(self) -> None:
        try:
            while True:
                self._read_one()
        except ChannelClosedError:
            self._stop(Stop(0.0))  # the parent wants no more, or the lifeline is about to end us
        except BaseException as error:  # noqa: BLE001  nobody can ask for anything any more
            self._reporter.end_now(error)

    def _read_one(self) -> None:
        try:
            message = self._channel.receive()
        except CorruptMessageError as error:
            self._read_damaged(error)
            return
        if isinstance(message, Execute):
            self._table.add(message.id, message.previews)
            self._tasks.put(message)
        elif isinstance(message, ExecuteBatch):
            for request_id in message.requests:
                self._table.add(member_id(message.id, request_id))
            self._tasks.put(message)
        elif isinstance(message, Call):
            self._call(message)
        elif isinstance(message, Drop):
            self._drop(message)
        elif isinstance(message, PreviewTaken):
            self._table.give_preview(message.id)
        elif isinstance(message, Unreadable):
            self._room.take_back(message.id)
        elif isinstance(message, Stop):
            self._stop(message)
        else:
            raise ChannelBrokenError(f"a worker receives no {type(message).__name__}")

    def _read_damaged(self, error: CorruptMessageError) -> None:
        """Let a damaged request or call fail in its turn; any other ends the worker."""
        if error.message_id is None or error.kind not in (
            Kind.EXECUTE,
            Kind.EXECUTE_BATCH,
            Kind.CALL,
        ):
            raise error
        if error.kind == Kind.EXECUTE:
            self._table.add(error.message_id)
        self._tasks.put(Damaged(error.kind, error.message_id, error))

    def _call(self, call: Call) -> None:
        if call.method == DESCRIBE:
            self._reporter.result(call.id, result=Pickled.of(self._table.describe()))
        else:
            self._tasks.put(call)

    def _drop(self, drop: Drop) -> None:
        for name in drop.ids:
            if self._table.drop(name):
                self._reporter.dropped(name)
        self._room.wake()

    def _stop(self, stop: Stop) -> None:
        self._room.stop_at = time.monotonic() + stop.timeout
        self._room.wake()
        self._tasks.put(stop)
