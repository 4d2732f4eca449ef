"""A bounded file of the last events of one process, which survives the process.

The file is mapped memory: writing an event is a copy of some hundred bytes, without a system call
and without a lock, and what a killed process has written is there to be read. The oldest events
are overwritten. Its pages are taken from the disk as they are written.

Layout: a head of 4096 bytes with JSON about the process, then slots of 256 bytes. A slot is the
number of its event (from 1; 0: empty), the length of its text, and the event as JSON.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SLOT_BYTES = 256
_HEAD_BYTES = 4096
_MAGIC = b"OMNIRING1\n"
_SLOT = struct.Struct("<QH")
_ROOM = SLOT_BYTES - _SLOT.size
_encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_MOST_HEAD = _HEAD_BYTES - len(_MAGIC) - 4


class RingWriter:
    """Writes the events of this process. Any thread may call `write`.

    Makes the file, which must not exist, with mode 0600. Raises `OSError` when it cannot.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], slots: int) -> None:
        self.path = path
        self._slots = slots
        self._numbers = itertools.count()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = _HEAD_BYTES + slots * SLOT_BYTES
            os.truncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        text = json.dumps({**about, "slots": slots}).encode()
        if len(text) > _MOST_HEAD:
            text = json.dumps({"pid": os.getpid(), "slots": slots}).encode()
        self._map[: len(_MAGIC) + 4 + len(text)] = _MAGIC + struct.pack("<I", len(text)) + text

    def write(self, event: Sequence[Any]) -> None:
        """Write one event; its last item is left out where it is too long. Does not block."""
        text = _encoded(event).encode()
        if len(text) > _ROOM:
            text = _encoded([*event[:-1], {"cut": True}]).encode()
        if len(text) > _ROOM:
            return
        number = next(self._numbers)  # atomic: no two threads have the same slot, but for laps
        at = _HEAD_BYTES + number % self._slots * SLOT_BYTES
        slot = _SLOT.pack(number + 1, len(text)) + text
        self._map[at : at + len(slot)] = slot


class Ring:
    """What one process left. Raises `ValueError` for a file that is no ring.

    `about` says which process it was, `lost` how many events were overwritten, `damaged` how
    many slots cannot be read (their process was killed meanwhile, or writes now).
    """

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        start = len(_MAGIC) + 4
        if len(self._data) < _HEAD_BYTES or self._data[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"{path} holds no events of omni-platforms")
        (length,) = struct.unpack_from("<I", self._data, len(_MAGIC))
        self.about: dict[str, Any] = json.loads(self._data[start : start + length])
        self.lost = 0
        self.damaged = 0

    def events(self) -> Iterator[list[Any]]:
        """Yield the events, oldest first; then `lost` and `damaged` are known."""
        slots = []
        for at in range(_HEAD_BYTES, len(self._data) - SLOT_BYTES + 1, SLOT_BYTES):
            number, length = _SLOT.unpack_from(self._data, at)
            if number:
                slots.append((number, at + _SLOT.size, length))
        slots.sort()
        self.lost = max(0, slots[-1][0] - len(slots)) if slots else 0
        self.damaged = 0
        for _, start, length in slots:
            try:
                event = json.loads(self._data[start : start + length])
            except ValueError:
                self.damaged += 1
                continue
            yield event
