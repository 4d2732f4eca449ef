"""Running a command so that its executors, and those of its child processes, are recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType


def run_traced(command: Sequence[str], folder: Path, events: int, quiet: bool = False) -> int:
    """Run a command to its end; return its exit status, 128 + n where signal n ended it.

    Ctrl-C is the command's, SIGTERM is passed on to it. With `quiet` its standard output goes to
    standard error. Raises `OSError` when it cannot be started.
    """
    variables = {"OMNI_TRACE": str(folder), "OMNI_TRACE_EVENTS": str(events)}
    process = subprocess.Popen(
        list(command), env={**os.environ, **variables}, stdout=sys.stderr if quiet else None
    )
    with _passing_on(process):
        status = process.wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave signals to the command: this process has to write the trace afterwards."""

    def terminate(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
