"""The simulator's one lock, which also puts work off until it is released."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from omni_platforms.errors import SimulatorForkedError


class Gate:
    """A reentrant lock with a list of calls to make just before it is released.

    Python's garbage collector may free a device tensor at any instruction, also
    in the middle of the scheduler. Such a free is put off with `when_released`,
    so that nothing changes under a loop that is running.

    The process that takes the lock first owns the device. A fork of it does not:
    it has no part in the queued work, and another thread may have held the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._owner = 0
        self._process = 0  # a fork before the first use harms nothing
        self._later: deque[Callable[[], None]] = deque()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of the process that uses the device."""
        return self._process not in (0, os.getpid())

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._own()
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
        """Make `call` now, or when this thread leaves the lock, where it holds it.

        In a forked child the call is left out: what it would free is the parent's.
        """
        if self.forked:
            return
        if self._owner == threading.get_ident():
            self._later.append(call)
            return
        with self:
            call()

    def _own(self) -> None:
        if self.forked:
            raise SimulatorForkedError(
                f"the simulated device was in use in process {self._process}, and this is a fork "
                f"of it ({os.getpid()}): a device does not survive a fork. Start children by the "
                "method 'spawn' or 'forkserver', with OMNI_SIMULATE set."
            )
        self._process = os.getpid()
