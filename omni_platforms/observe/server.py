"""The socket of this process: it answers each connection of the same user with one document.

A thread of its own sleeps in `accept` until somebody asks. No executor ever waits for it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import struct
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omni_platforms import observers
from omni_platforms.errors import OmniError
from omni_platforms.observe import places
from omni_platforms.observe.state import snapshot

logger = logging.getLogger(__name__)

_PATIENCE_S = 1.0  # for one client to send its question, or to take its answer
_MOST_QUESTION = 4096
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

Answer = Callable[[Mapping[str, Any], socket.socket], Any]


def _tell_snapshot(question: Mapping[str, Any], connection: socket.socket) -> Any:
    return snapshot()


class Server:
    """Listens in a private folder. `answers` gives the answer to each question by its name.

    Raises `ObserveError`, and `OSError` when there can be no socket.
    """

    def __init__(self, folder: Path, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self._process = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = f"{self._process}-{id(self):x}"
        self.path = folder / f"{name}{places.SUFFIX}"
        early = folder / f"{name}.tmp"
        try:
            self._socket.bind(str(early))
            os.chmod(early, 0o600)
            self._socket.listen(8)
            os.rename(early, self.path)
        except BaseException:
            self._socket.close()
            early.unlink(missing_ok=True)
            raise
        self._thread = threading.Thread(target=self._run, name="omni-expose", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more, and take the socket away. In a forked child: let go of it only."""
        if os.getpid() == self._process:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            if not self._is_ours(connection):
                connection.close()
                continue
            # A thread each: one that records, or reads slowly, holds up no other.
            threading.Thread(
                target=self._serve, args=(connection,), name="omni-expose-one", daemon=True
            ).start()

    def _is_ours(self, connection: socket.socket) -> bool:
        """Whether the same user asks. The folder keeps others out; this is the second door."""
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        size = _CREDENTIALS.size
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, user, _ = _CREDENTIALS.unpack(raw)
        return bool(user == os.geteuid())

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(_PATIENCE_S)
                question = json.loads(_line(connection))
                answer = self._answers[question["want"]](question, connection)
                connection.settimeout(_PATIENCE_S)
                connection.sendall(json.dumps(answer, default=str).encode())
            except (OSError, ValueError, KeyError, TypeError) as error:
                logger.debug("a question was not answered: %r", error)
            except Exception:
                logger.exception("a question about the executors failed")


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(_MOST_QUESTION)
        if not more or len(data) + len(more) > _MOST_QUESTION:
            raise ValueError("that is no question")
        data += more
    return data


# The one of this process ----------------------------------------------------------

_lock = threading.Lock()
_server: Server | None = None


def expose() -> Path:
    """Let other processes of this user see this one; return its socket. Again: the same.

    Also what workers are started later are seen: OMNI_EXPOSE is set for them. Any thread.
    Raises `ObserveError` and `SettingError`.
    """
    global _server
    from omni_platforms.observe.recording import record

    with _lock:
        if _server is None:
            answers = {"snapshot": _tell_snapshot, "trace": record}
            _server = Server(places.made_folder(), answers)
        os.environ["OMNI_EXPOSE"] = "1"
        return _server.path


def expose_with_first() -> None:
    """Expose this process when it has its first executor: before, there is nothing to show."""
    observers.watch(_expose_now)


def _expose_now(made: observers.Made) -> None:
    observers.unwatch(_expose_now)
    try:
        expose()
    except (OmniError, OSError) as error:
        text = f"{error} (this process goes on, and cannot be seen)"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def hide() -> None:
    """Let nobody see this process any more; workers that run are still seen."""
    global _server
    with _lock:
        server, _server = _server, None
        os.environ.pop("OMNI_EXPOSE", None)
    if server is not None:
        server.close()


def _at_exit() -> None:
    if _server is not None:
        _server.close()


def _in_child() -> None:
    """In a forked child: it has no thread, and the socket is its parent's. It gets its own."""
    global _lock, _server
    _lock = threading.Lock()
    server, _server = _server, None
    if server is not None:
        server.close()
        expose_with_first()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
