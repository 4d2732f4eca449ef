"""Previews of a stepwise request: what has come, and who waits for more."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preview:
    """An intermediate value of a request: `value` as it was after step `step`."""

    id: str
    step: int | None
    value: Any


class Previews:
    """An iterator over previews, for threads and (`async for`) for asyncio.

    It ends when the request is computed, failed or dropped. A worker sends no more
    than a few that nobody has taken, and skips the others: whoever is slow sees fewer,
    and holds nothing up. Each preview that is taken allows one more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come: deque[tuple[Preview, Callable[[], None]]] = deque()
        self._waiting: deque[concurrent.futures.Future[Preview | None]] = deque()
        self._ended = False

    # For the executor ---------------------------------------------------------

    def put(self, preview: Preview, taken: Callable[[], None]) -> None:
        """Hand one over; `taken` is called when somebody has it. Does not block."""
        with self._lock:
            receiver = self._next_waiting()
            if receiver is None:
                self._come.append((preview, taken))
        if receiver is not None:
            receiver.set_result(preview)
            taken()

    def end(self, *, discard: bool = False) -> None:
        """No more will come. What has come can still be taken, unless it is discarded."""
        with self._lock:
            self._ended = True
            if discard:
                self._come.clear()
            receivers = []
            while (receiver := self._next_waiting()) is not None:
                receivers.append(receiver)
        for receiver in receivers:
            receiver.set_result(None)

    # For users ----------------------------------------------------------------

    def __iter__(self) -> Previews:
        return self

    def __next__(self) -> Preview:
        """Block until the next preview. Raises `StopIteration` when there are no more."""
        preview = self._take().result()
        if preview is None:
            raise StopIteration
        return preview

    def __aiter__(self) -> Previews:
        return self

    async def __anext__(self) -> Preview:
        preview = await asyncio.wrap_future(self._take())
        if preview is None:
            raise StopAsyncIteration
        return preview

    def _take(self) -> concurrent.futures.Future[Preview | None]:
        future: concurrent.futures.Future[Preview | None] = concurrent.futures.Future()
        with self._lock:
            if not self._come and not self._ended:
                self._waiting.append(future)
                return future
            preview, taken = self._come.popleft() if self._come else (None, None)
        future.set_result(preview)
        if taken is not None:
            taken()
        return future

    def _next_waiting(self) -> concurrent.futures.Future[Preview | None] | None:
        """Return the longest waiting taker that has not given up; it cannot do so afterwards."""
        while self._waiting:
            future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                return future
        return None
