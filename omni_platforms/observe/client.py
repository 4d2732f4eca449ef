"""Asking the processes of this user: who is there, and what each has in hand."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_platforms.observe import places

_PATIENCE_S = 2.0
_MOST_BYTES = 16 << 20
_FORGOTTEN_S = 60.0  # a process was killed between making its socket and answering on it


@dataclass(frozen=True)
class Answer:
    """What one process answered: a document, or why there is none."""

    pid: int
    document: Mapping[str, Any] | None = None
    problem: str = ""


def ask_all(
    folder: Path, question: Mapping[str, Any], timeout: float = _PATIENCE_S
) -> list[Answer]:
    """Ask every process in `folder`, all at once; sockets of dead processes are swept away.

    Blocks at most about `timeout` seconds. A process that died meanwhile is not in the answers,
    one that does not answer is there with its problem.
    Raises `ObserveError` for a folder that is not private.
    """
    if not folder.exists():
        return []
    places.check_private(folder)
    _sweep_forgotten(folder)
    paths = sorted(folder.glob(f"*{places.SUFFIX}"))
    if not paths:
        return []
    with ThreadPoolExecutor(min(32, len(paths)), "omni-ask") as threads:
        answers = threads.map(lambda path: ask(path, question, timeout), paths)
        return [answer for answer in answers if answer is not None]


def ask(path: Path, question: Mapping[str, Any], timeout: float = _PATIENCE_S) -> Answer | None:
    """Ask the process of one socket; `None` when it is dead. Blocks at most `timeout` seconds."""
    pid = places.process_of(path)
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(json.dumps(question).encode() + b"\n")
            data = _all_of(connection, deadline)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # nobody listens, and nobody will
            return None
        except (FileNotFoundError, ConnectionError):
            return None
        except TimeoutError:
            return Answer(pid, problem=f"no answer within {timeout:g} s")
        except (OSError, ValueError) as error:
            return Answer(pid, problem=str(error))
    return _answer(pid, data)


def _answer(pid: int, data: bytes) -> Answer | None:
    if not data:
        return None  # it died, or does not know us
    try:
        document = json.loads(data)
    except ValueError:
        return None  # it died in the middle of a word
    if not isinstance(document, dict):
        return Answer(pid, problem="an answer that is no document")
    return Answer(pid, document)


def _all_of(connection: socket.socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        connection.settimeout(max(1e-3, deadline - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError("an answer without end")


def _sweep_forgotten(folder: Path) -> None:
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _FORGOTTEN_S:
                path.unlink()


def family(answers: Sequence[Answer], pid: int) -> list[Answer]:
    """Return a process and its worker processes."""
    return [
        answer
        for answer in answers
        if answer.document is not None
        and (answer.pid == pid or (answer.document.get("parent") == pid and _is_worker(answer)))
    ]


def _is_worker(answer: Answer) -> bool:
    return answer.document is not None and answer.document.get("rank") is not None
