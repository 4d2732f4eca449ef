"""`results.jsonl`: one line a request, written the moment that it ends.

Each line is one write at the end of the file: whatever kills the run afterwards
cannot take it back. (Only a crash of the whole machine could: nothing waits for the disk.)
The last line of an id counts. One run at a time may write the file.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omni_platforms.errors import JobError
from omni_platforms.jobs.requests import Request

OK, FAILED = "ok", "failed"
logger = logging.getLogger(__name__)
RESULTS, OUTPUTS, SUMMARY, TRACE = "results.jsonl", "outputs", "summary.json", "trace.json"


class ResultFolder:
    """The folder of one run, locked while the object is open. Use it as a context manager.

    Raises `JobError` when the folder cannot be used, or another run writes to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results, self.outputs = folder / RESULTS, folder / OUTPUTS
        try:
            self.outputs.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.results, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise JobError(
                f"--out {folder} cannot be used ({error.strerror}): name a folder that can be "
                "made and written"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise JobError(
                f"another run writes to {folder}: wait for it, or name another folder"
            ) from error
        except OSError as error:  # a network's file system may have no locks
            logger.warning("%s cannot be locked (%s): start no second run", folder, error.strerror)

    def __enter__(self) -> ResultFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def is_new(self) -> bool:
        """Whether no run has left a result here."""
        return os.fstat(self._file).st_size == 0

    def append(self, record: dict[str, Any]) -> None:
        """Write one line. Raises `JobError` when the folder refuses it."""
        try:
            self._write(json.dumps(record, allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise JobError(
                f"{self.results} cannot be written ({error.strerror}): make room, and run "
                "again with --resume"
            ) from error

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            line = b"\n" + line  # a write that a full disk cut short
        if os.write(self._file, line) < len(line):
            raise OSError(28, "the line was cut short: the disk is full")

    def finished(self, requests: Iterable[Request]) -> list[Request]:
        """Return the requests that an earlier run finished: the same content, and all files here.

        Blocks for the file. Lines that are no records count for nothing.
        """
        last = {record.get("id"): record for record in self._records()}
        return [request for request in requests if self._is_done(request, last.get(request.id))]

    def _records(self) -> Iterator[dict[str, Any]]:
        with self.results.open("rb") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record

    def _is_done(self, request: Request, record: dict[str, Any] | None) -> bool:
        if record is None or record.get("status") != OK or record.get("digest") != request.digest:
            return False
        return all((self.folder / str(file)).is_file() for file in record.get("files", ()))
