"""The simulator's one lock, which also puts work off until it is released."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Gate:
    """A reentrant lock with a list of calls to make just before it is released.

    Python's garbage collector may free a device tensor at any instruction, also
    in the middle of the scheduler. Such a free is put off with `when_released`,
    so that nothing changes under a loop that is running.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._owner = 0
        self._later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            while self._depth == 1 and self._later:
                self._later.popleft()()
        finally:
            self._depth -= 1
            if not self._depth:
                self._owner = 0
            self._lock.release()

    def when_released(self, call: Callable[[], None]) -> None:
        """Make `call` now, or when this thread leaves the lock, where it holds it."""
        if self._owner == threading.get_ident():
            self._later.append(call)
            return
        with self:
            call()
