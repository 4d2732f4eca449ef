"""`Sender`: the thread that writes to one worker, so that nobody else waits for its socket.

A worker in a long forward may not read. Were the pump to wait for it, and the
worker for the pump, both would wait for ever; and callers want `submit` to return at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import Message
from omni_platforms.errors import ChannelClosedError


class Sender:
    """Sends messages in the order of `put`.

    `failed(error)` is called, on the thread, when it cannot go on; that the worker is gone is
    no such failure: who receives from it sees that.
    """

    def __init__(
        self, channel: Channel, name: str, failed: Callable[[BaseException], None]
    ) -> None:
        self._channel = channel
        self._failed = failed
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=f"omni-send-{name}", daemon=True)
        self.thread.start()

    def put(self, message: Message) -> None:
        """Have a message sent. Does not block."""
        self._queue.put(message)

    def close(self) -> None:
        """Let the thread end when what was put is sent. Does not block."""
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while (message := self._queue.get()) is not None:
                self._channel.send(message)
                del message  # not kept while it waits for the next
        except ChannelClosedError:
            return
        except BaseException as error:  # noqa: BLE001  whatever it is, it is reported
            self._failed(error)
