"""Messages as bytes.

A header with the kind, the id and its own checksum, so that a message whose rest is
damaged still says whose it was; the other fields, pickled, with a checksum; then the
bytes of users' objects and packets, which are checked by who reads them. Only
records of this package are unpickled from the fields.
"""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import (
    AsyncOutput,
    Call,
    Drop,
    Ended,
    Execute,
    ExecuteBatch,
    Kind,
    Message,
    PreviewTaken,
    Setup,
    Started,
    Stop,
    Unreadable,
)
from omni_platforms.engine.payload import Blob, Pickled
from omni_platforms.errors import CorruptMessageError

MAGIC, VERSION = b"OmEn", 1
_HEADER = struct.Struct("<4sHHIIQI")  # magic, version, kind, id, fields, blobs, their checksum
_CHECK = struct.Struct("<I")  # of the header and the id, behind them

_PLAIN = (Setup, Execute, ExecuteBatch, Call, Drop, PreviewTaken, Unreadable, Stop, Started, Ended)
_ABOUT_OUTPUTS = (
    Kind.COMPUTE_DONE,
    Kind.OUTPUT_COMING,
    Kind.OUTPUT_READY,
    Kind.PREVIEW,
    Kind.RPC_RESULT,
    Kind.DROPPED,
)
_RECORDS: dict[int, Any] = {record.kind: record for record in _PLAIN} | dict.fromkeys(
    _ABOUT_OUTPUTS, AsyncOutput
)


class _Shape(NamedTuple):
    """What of a record is in the fields of its message; its id is in the header."""

    make: Any
    names: tuple[str, ...]
    has_id: bool
    has_kind: bool


def _shape(record: Any) -> _Shape:
    names = [field.name for field in fields(record)]
    rest = tuple(name for name in names if name not in ("kind", "id"))
    return _Shape(record, rest, "id" in names, "kind" in names)


_SHAPES = {kind: _shape(record) for kind, record in _RECORDS.items()}


def encode(message: Message) -> list[Any]:
    """Return the bytes of a message, in pieces."""
    name = getattr(message, "id", "").encode("utf-8", "surrogatepass")
    blobs: list[Any] = []
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=lambda blob: blobs.append(blob.raw()))
    pickler.dump([getattr(message, field) for field in _SHAPES[message.kind].names])
    sizes = [len(blobs), *(blob.nbytes for blob in blobs)]
    rest = struct.pack(f"<{len(sizes)}Q", *sizes) + file.getvalue()
    header = _HEADER.pack(
        MAGIC, VERSION, message.kind, len(name), len(rest), sum(sizes[1:]), zlib.crc32(rest)
    )
    return [header, name, _CHECK.pack(zlib.crc32(name, zlib.crc32(header))), rest, *blobs]


def decode(data: Any) -> Message:
    """Read one message.

    Raises `CorruptMessageError` for anything but the bytes of `encode`. It carries
    the message's id and kind where the damage is behind them.
    """
    whole = memoryview(data).cast("B")
    kind, name, check, start, end = _read_header(whole)
    if zlib.crc32(whole[start:end]) != check:
        raise _corrupt("the fields of a message are damaged: their checksum is wrong", name, kind)
    shape = _SHAPES.get(kind)
    if shape is None:
        raise _corrupt(f"this release knows no message of kind {kind}", name, kind)
    try:
        return _made(shape, kind, name, _read_fields(whole[start:end], whole[end:]))
    except Exception as error:
        raise _corrupt(f"the fields of a message make no sense: {error}", name, kind) from error


def _made(shape: _Shape, kind: int, name: str, values: Sequence[Any]) -> Message:
    if len(shape.names) != len(values):
        raise ValueError(
            f"{len(values)} fields, where {shape.make.__name__} has {len(shape.names)}"
        )
    named = dict(zip(shape.names, values, strict=True))
    if shape.has_id:
        named["id"] = name
    if shape.has_kind:
        named["kind"] = Kind(kind)
    made: Message = shape.make(**named)
    return made


def _read_header(whole: memoryview) -> tuple[int, str, int, int, int]:
    """Return the kind, the id, the checksum of the fields, and where these begin and end."""
    if len(whole) < _HEADER.size:
        raise _corrupt(f"a message has at least {_HEADER.size} bytes, not {len(whole)}")
    magic, version, kind, id_bytes, rest, blobs, check = _HEADER.unpack_from(whole)
    if magic != MAGIC:
        raise _corrupt(f"this is no message: it begins with {magic!r}")
    if version != VERSION:
        raise _corrupt(
            f"the message has version {version}, and this process speaks version {VERSION}: run "
            "the same release of omni-platforms in worker and parent"
        )
    end = _HEADER.size + id_bytes
    start = end + _CHECK.size
    if start + rest + blobs != len(whole):
        raise _corrupt(f"a message of {len(whole)} bytes does not have the length that it says")
    if zlib.crc32(whole[:end]) != _CHECK.unpack_from(whole, end)[0]:
        raise _corrupt("the start of a message is damaged: its checksum is wrong")
    name = str(whole[_HEADER.size : end], "utf-8", "surrogatepass")
    return kind, name, check, start, start + rest


def _read_fields(rest: memoryview, blobs: memoryview) -> Sequence[Any]:
    (count,) = struct.unpack_from("<Q", rest)
    sizes = struct.unpack_from(f"<{count}Q", rest, 8)
    buffers = []
    for size in sizes:
        buffers.append(blobs[:size])
        blobs = blobs[size:]
    file = io.BytesIO(rest[8 * (1 + count) :])
    values: Sequence[Any] = _FieldUnpickler(file, buffers=buffers).load()
    return values


def _corrupt(what: str, message_id: str | None = None, kind: int | None = None) -> Exception:
    error = CorruptMessageError(what)
    error.message_id, error.kind = message_id, kind
    return error


class _FieldUnpickler(pickle.Unpickler):
    """Makes no objects but this package's records."""

    def find_class(self, module: str, name: str) -> Any:
        """Allow nothing but records."""
        for record in (ErrorRecord, Blob, Pickled):
            if (module, name) == (record.__module__, record.__qualname__):
                return record
        raise ValueError(f"{module}.{name} has no place in a message")
