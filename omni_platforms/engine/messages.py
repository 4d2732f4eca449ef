"""What a parent and its worker say to each other: frozen records.

    parent -> worker                      worker -> parent
    Setup         once, the first         Started        up, or the error
    Execute       one request             COMPUTE_DONE   its forward has ended, or failed
    ExecuteBatch  several, as one         OUTPUT_READY   an output's packet, or its error
    Call          any method              OUTPUT_COMING  its packet, before its bytes are there
    Drop          outputs nobody wants    PREVIEW        an intermediate value
    PreviewTaken  one more may come       RPC_RESULT     a call's result, or its error
    Unreadable    a packet got lost       DROPPED        one of `Drop` is out of all memory
    Stop          no more will come       Ended          the worker's last word

The rules:

- `Execute` is answered by one COMPUTE_DONE. One with an error is all that comes; otherwise
  one OUTPUT_READY follows, for a batch one for each member, named `{batch_id}/{request_id}`,
  unless the output was dropped or the worker is one that does not deliver.
- OUTPUT_COMING may come once before OUTPUT_READY, which has no packet then. Nobody may see
  what it unpacks to until then: the device is still writing it.
- `Call` is answered by one RPC_RESULT of the same id.
- Each id of `Drop` is answered by one DROPPED, when neither the device nor the host
  reads or writes anything for it any more; nothing else comes for this id after it. The
  members of a batch are named one by one. What the worker does not know is acknowledged at once.
- At most `Execute.previews` previews are on their way or untaken; each `PreviewTaken`
  allows one more. What comes before that is skipped, never awaited. Previews may come
  behind their request's COMPUTE_DONE, and before its OUTPUT_READY.
- `Unreadable` follows an OUTPUT_READY, OUTPUT_COMING or PREVIEW that was damaged on its way, where
  nothing of its packet was leased, so that nobody can have a view: its blocks are the worker's.
- The id of a PREVIEW is `{request_id}@{step}`.
- All messages of a worker stay in the order in which it sent them.

`wire.py` makes bytes of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.payload import Blob, Pickled


class Kind(enum.IntEnum):
    """What a message is. The numbers are the wire's."""

    SETUP = 1
    EXECUTE = 2
    EXECUTE_BATCH = 3
    CALL = 4
    DROP = 5
    PREVIEW_TAKEN = 6
    STOP = 7
    UNREADABLE = 8
    STARTED = 32
    COMPUTE_DONE = 33
    OUTPUT_READY = 34
    PREVIEW = 35
    RPC_RESULT = 36
    DROPPED = 37
    ENDED = 38
    OUTPUT_COMING = 39


DESCRIBE, TRIM = "omni.describe", "omni.trim"
"""Calls that a worker answers itself: the rows of what it has in hand, and the bytes of shared
memory that it has given back. No method can have these names."""


def member_id(batch_id: str, request_id: str) -> str:
    """Return the id of one output of a batch."""
    return f"{batch_id}/{request_id}"


def preview_id(request_id: str, step: int) -> str:
    """Return the id of a preview's message, and of its blocks."""
    return f"{request_id}@{step}"


def request_of(preview: str) -> str:
    """Return the id of the request that a preview is of."""
    return preview.rpartition("@")[0] or preview


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
    announces: bool = True
    """Whether OUTPUT_COMING is of use: not to a parent that fetches outputs from afar."""


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
class Unreadable:
    """The packet of output or preview `id` could not be read, and nobody has its blocks."""

    kind: ClassVar[Kind] = Kind.UNREADABLE
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
    """COMPUTE_DONE, OUTPUT_COMING, OUTPUT_READY, PREVIEW, RPC_RESULT or DROPPED."""
    id: str
    error: ErrorRecord | None = None
    packet: Blob | None = None
    """What `ArenaView.unpack` takes (`packet.data`), of OUTPUT_COMING, PREVIEW and an OUTPUT_READY
    that was not announced."""
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
    | Unreadable
    | Stop
    | Started
    | AsyncOutput
    | Ended
)
