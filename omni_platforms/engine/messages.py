"""What a parent and its worker say to each other: frozen records, and their bytes.

    parent -> worker                      worker -> parent
    Setup         once, the first         Started        up, or the error
    Execute       one request             COMPUTE_DONE   its forward has ended, or failed
    ExecuteBatch  several, as one         OUTPUT_READY   an output's packet, or its error
    Call          any method              PREVIEW        an intermediate value
    Drop          outputs nobody wants    RPC_RESULT     a call's result, or its error
    PreviewTaken  one more may come       DROPPED        one of `Drop` is out of all memory
    Stop          no more will come       Ended          the worker's last word

The rules:

- `Execute` is answered by one COMPUTE_DONE. One with an error is all that comes; otherwise
  one OUTPUT_READY follows, for a batch one for each member, named `{batch_id}/{request_id}`,
  unless the output was dropped or the worker is one that does not deliver.
- `Call` is answered by one RPC_RESULT of the same id.
- Each id of `Drop` is answered by one DROPPED, when neither the device nor the host
  reads or writes anything for it any more; nothing else comes for this id after it.
  The id of a batch stands for all of its members.
- At most `Execute.previews` previews are on their way or untaken; each `PreviewTaken`
  allows one more. What comes before that is skipped, never awaited.
- All messages of a worker stay in the order in which it sent them.

On the wire: a header with the kind, the id and its own checksum, so that a message whose
rest is damaged still says whose it was; the other fields, pickled, with a checksum; then the
bytes of users' objects and packets, which are checked by who reads them. Only records of
this module are unpickled from the fields.
"""

from __future__ import annotations

import enum
import io
import pickle
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.payload import Blob, Pickled
from omni_platforms.errors import CorruptMessageError

MAGIC, VERSION = b"OmEn", 1
_HEADER = struct.Struct("<4sHHIIQI")  # magic, version, kind, id, fields, blobs, their checksum
_CHECK = struct.Struct("<I")  # of the header and the id, behind them


class Kind(enum.IntEnum):
    """What a message is. The numbers are the wire's."""

    SETUP = 1
    EXECUTE = 2
    EXECUTE_BATCH = 3
    CALL = 4
    DROP = 5
    PREVIEW_TAKEN = 6
    STOP = 7
    STARTED = 32
    COMPUTE_DONE = 33
    OUTPUT_READY = 34
    PREVIEW = 35
    RPC_RESULT = 36
    DROPPED = 37
    ENDED = 38


def member_id(batch_id: str, request_id: str) -> str:
    """Return the id of one output of a batch."""
    return f"{batch_id}/{request_id}"


# Parent -> worker -------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """Who the worker is. Times in seconds, sizes in bytes."""

    kind: ClassVar[Kind] = Kind.SETUP
    worker: str
    """"package.module:Class" or "path/to/file.py:Class"."""
    config: Pickled
    rank: int = 0
    world_size: int = 1
    device_index: int = 0
    delivers: bool = True
    """Whether its outputs are wanted. Of ranks that work in lockstep only one has this."""
    arena_cap: int | None = None
    arena_shares: int = 1
    """How many workers divide the default cap between them."""
    arena_segment_bytes: int | None = None
    arena_initial_bytes: int | None = None
    block_when_full: bool = True
    """Whether an output waits for room in the arena; it fails at once otherwise."""
    room_timeout: float = 600.0
    """How long it waits."""
    max_in_flight: int = 4
    """How many outputs the device may be computing or copying before a hand-over waits.

    A forward that never waits for its device would otherwise run ahead of it without
    end, and every output on its way holds device memory.
    """
    drain_timeout: float = 10.0
    """How long `sleep` waits for copies in flight before it is refused."""


@dataclass(frozen=True)
class Execute:
    """One request."""

    kind: ClassVar[Kind] = Kind.EXECUTE
    id: str
    request: Pickled
    stepwise: bool = False
    previews: int = 0
    """How many previews may be on their way at once; 0: none are wanted."""


@dataclass(frozen=True)
class ExecuteBatch:
    """Several requests as one forward. Each is pickled by itself, so that each can fail alone."""

    kind: ClassVar[Kind] = Kind.EXECUTE_BATCH
    id: str
    requests: Mapping[str, Pickled]


@dataclass(frozen=True)
class Call:
    """Call a method of the worker object between two requests, in the order of the messages."""

    kind: ClassVar[Kind] = Kind.CALL
    id: str
    method: str
    arguments: Pickled
    """The pair of positional arguments and keyword arguments."""
    drain: float | None = None
    """First wait so many seconds for the copies in flight; the call is refused if they go on."""


@dataclass(frozen=True)
class Drop:
    """Nobody wants these outputs any more, whatever became of them."""

    kind: ClassVar[Kind] = Kind.DROP
    ids: tuple[str, ...]


@dataclass(frozen=True)
class PreviewTaken:
    """The consumer of request `id` has taken, or thrown away, one preview."""

    kind: ClassVar[Kind] = Kind.PREVIEW_TAKEN
    id: str


@dataclass(frozen=True)
class Stop:
    """Finish what is queued and exit; after `timeout` seconds fail what was not begun."""

    kind: ClassVar[Kind] = Kind.STOP
    timeout: float


# Worker -> parent -------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The worker is up, or `error` says why it is not."""

    kind: ClassVar[Kind] = Kind.STARTED
    error: ErrorRecord | None = None
    platform: str = ""
    device: str = ""
    numa_node: int | None = None
    registered: bool = False
    """Whether the device writes shared memory itself."""
    arena_bytes: int = 0
    arena_cap: int = 0


@dataclass(frozen=True)
class AsyncOutput:
    """What became of a request, an output or a call."""

    kind: Kind
    """COMPUTE_DONE, OUTPUT_READY, PREVIEW, RPC_RESULT or DROPPED."""
    id: str
    error: ErrorRecord | None = None
    packet: Blob | None = None
    """OUTPUT_READY and PREVIEW: what `ArenaView.unpack` takes (`packet.data`)."""
    result: Pickled | None = None
    """RPC_RESULT: what the method returned."""
    members: tuple[str, ...] = ()
    """COMPUTE_DONE of a batch: the ids of its outputs."""
    step: int | None = None
    """PREVIEW: after which step; COMPUTE_DONE of a stepwise request: how many there were."""
    skipped_previews: int = 0
    """COMPUTE_DONE of a stepwise request: previews that the consumer was too slow for."""
    stamps: Mapping[str, float] = field(default_factory=dict)
    """When the worker was where with it, in seconds of `time.monotonic()`."""

    @property
    def async_output_id(self) -> str:
        """The id to wait for the output with."""
        return self.id


@dataclass(frozen=True)
class Ended:
    """The worker's last message. With an error it ended before it was asked to."""

    kind: ClassVar[Kind] = Kind.ENDED
    error: ErrorRecord | None = None


Message: TypeAlias = (
    Setup
    | Execute
    | ExecuteBatch
    | Call
    | Drop
    | PreviewTaken
    | Stop
    | Started
    | AsyncOutput
    | Ended
)

_RECORDS: dict[int, Any] = {
    record.kind: record
    for record in (Setup, Execute, ExecuteBatch, Call, Drop, PreviewTaken, Stop, Started, Ended)
} | {
    kind: AsyncOutput
    for kind in (
        Kind.COMPUTE_DONE,
        Kind.OUTPUT_READY,
        Kind.PREVIEW,
        Kind.RPC_RESULT,
        Kind.DROPPED,
    )
}


# Bytes ------------------------------------------------------------------------


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
