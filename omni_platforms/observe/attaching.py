"""Recording a process that runs, with its workers, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from omni_platforms.errors import ObserveError
from omni_platforms.observe import places
from omni_platforms.observe.client import ask_all, family

_ANSWER_S = 5.0


def record_process(pid: int, seconds: float, folder: Path, events: int) -> list[str]:
    """Have a process and its workers record into `folder`; return what went wrong, in words.

    Blocks for `seconds`, less when all of them end or on Ctrl-C; what was recorded until then is
    there. Raises `ObserveError` when the process cannot be seen.
    """
    home = places.folder()
    processes = [answer.pid for answer in family(ask_all(home, {"want": "snapshot"}), pid)]
    if pid not in processes:
        raise ObserveError(
            f"process {pid} cannot be seen in {home}: run it with OMNI_EXPOSE=1, as the same user"
        )
    question = {
        "want": "trace",
        "folder": os.path.abspath(folder),
        "seconds": seconds,
        "events": events,
    }
    with contextlib.ExitStack() as closing:
        asked = {
            process: closing.enter_context(_asked(path, question))
            for process in processes
            for path in home.glob(f"{process}-*{places.SUFFIX}")
        }
        with contextlib.suppress(KeyboardInterrupt):
            _wait(list(asked.values()), seconds)
        return [
            f"process {process} {problem}"
            for process, connection in asked.items()
            if (problem := _ended(connection)) is not None
        ]


def _asked(path: Path, question: object) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
    except OSError:
        return connection  # it has ended since: `_ended` says so
    return connection


def _wait(connections: Sequence[socket.socket], seconds: float) -> None:
    """Wait for the time to be over, or for all to have answered or ended."""
    deadline = time.monotonic() + seconds
    left = list(connections)
    while left and (time_left := deadline - time.monotonic()) > 0:
        answered, _, _ = select.select(left, [], [], time_left)
        left = [connection for connection in left if connection not in answered]


def _ended(connection: socket.socket) -> str | None:
    """End a recording; return what went wrong with it, or `None`."""
    try:
        connection.shutdown(socket.SHUT_WR)  # who records sees that nobody waits any more
        answer = connection.recv(1 << 12)
        refused = json.loads(answer)["refused"] if answer else "ended while it was recorded"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"did not say that it has recorded: {error}"
    return None if refused is None else str(refused)
