"""Run somebody else's code on a helper thread, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from omni_platforms.platform.stdout_capture import capture_stdout

T = TypeVar("T")


@dataclass
class Outcome(Generic[T]):
    """What became of the call: exactly one of `value`, `error`, or not `finished`."""

    finished: bool = False
    value: T | None = None
    error: BaseException | None = None
    printed: str = ""


def run_with_deadline(function: Callable[[], T], timeout: float, name: str) -> Outcome[T]:
    """Call `function` on a daemon thread called `name`; wait at most `timeout` seconds.

    What it raises is kept, `SystemExit` and `KeyboardInterrupt` included: on a
    helper thread these come from the called code, never from the user's Ctrl-C,
    which Python delivers to the main thread. A call that outlasts the deadline
    is abandoned, and its late result is ignored.
    """
    attempt: Outcome[T] = Outcome()
    with capture_stdout() as capture:

        def target() -> None:
            capture.keep_this_thread()
            _attempt(function, attempt)

        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        thread.join(timeout)
        # A copy: an abandoned call must not change what was answered for it.
        outcome = Outcome(attempt.finished, attempt.value, attempt.error, capture.text())
    return outcome if outcome.finished else Outcome(printed=outcome.printed)


def _attempt(function: Callable[[], T], outcome: Outcome[T]) -> None:
    try:
        outcome.value = function()
    except BaseException as error:  # noqa: BLE001 - kept and reported by the caller
        outcome.error = error
    outcome.finished = True
