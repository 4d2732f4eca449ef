"""`Agent`: the Ray actor of one worker. It holds the device's place, and the worker's process.

The worker itself is a child process of the actor, the same as on one host: its main thread is the
user's, its exit status and what it printed last are known, and it ends with the actor, by the
lifeline, however that ends. It talks to the driver over a connection that the agent opens and
leaves to it, so that no message passes through the actor, or through Ray.

This module imports no torch: the actor stays small.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_platforms.engine import spawning
from omni_platforms.engine.child import Child
from omni_platforms.engine.ray.library import load_ray
from omni_platforms.engine.ray.reception import present
from omni_platforms.engine.ray.resources import device_index
from omni_platforms.errors import ChannelClosedError
from omni_platforms.shm.packet import BlockRecord
from omni_platforms.shm.reader import BlockReader

_CONNECT_S = 20.0


@dataclass(frozen=True)
class Order:
    """What an agent needs to start its worker."""

    name: str
    platform: str
    socket_path: str | None
    """The driver's Unix socket, to be tried first; `None`: as if this were another host."""
    address: tuple[str, int]
    """Host and port of the driver's TCP socket."""
    channel_token: bytes
    arena_token: bytes
    environment: Mapping[str, str]
    """Variables of the worker beside this node's."""
    path: Sequence[str]
    """The driver's `sys.path`: what of it exists here is the worker's."""
    folder: str
    """The driver's current folder, which is the worker's where it exists here."""


@dataclass(frozen=True)
class Report:
    """Where a worker was started, and how."""

    pid: int
    node: str
    """Ray's id of the node."""
    host: str
    """Its address."""
    shares_memory: bool
    """It is on the driver's host: its outputs need not be copied."""
    device_index: int | None
    """What Ray assigned; `None` where it assigns no devices."""


@dataclass(frozen=True)
class Exit:
    """How a worker's process ended."""

    how: str
    """In words: "killed by SIGKILL"."""
    printed: str
    """What it printed last, as the end of a message."""


class Agent:
    """Starts one worker, and knows of its end. Its methods run on several threads of the actor."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._arena_end: socket.socket | None = None
        self._reader: BlockReader | None = None
        self._reading = threading.Lock()

    def start(self, order: Order) -> Report:
        """Connect to the driver and start the worker's process; do not wait until it is up.

        Raises `ChannelClosedError` when the driver cannot be reached, `OSError`, `ValueError`.
        """
        context = load_ray().get_runtime_context()
        index = device_index(order.platform, context.get_accelerator_ids())
        with contextlib.ExitStack() as ends:
            channel, shares_memory = _connected(order)
            ends.callback(channel.close)
            arena = self._arena_socket(order, shares_memory)
            ends.callback(arena.close)
            self._child = Child(
                order.name,
                [channel.fileno(), arena.fileno()],
                {**os.environ, **order.environment},
                _path(order.path),
                order.folder if os.path.isdir(order.folder) else None,
            )
        return Report(
            self._child.pid,
            context.get_node_id(),
            load_ray().util.get_node_ip_address(),
            shares_memory,
            index,
        )

    def _arena_socket(self, order: Order, shares_memory: bool) -> socket.socket:
        """Return the worker's end of the socket that its arena's descriptors come over."""
        if not shares_memory:
            self._arena_end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            return theirs
        assert order.socket_path is not None
        return _to_unix(order.socket_path, order.arena_token)

    def clock(self) -> float:
        """Return this host's `time.monotonic()`."""
        return time.monotonic()

    def wait_exit(self) -> Exit:
        """Block until the worker's process has ended."""
        child = self._started()
        child.wait_exit()
        return Exit(child.state(), child.printed_note())

    def terminate(self) -> None:
        """Send the worker SIGTERM."""
        self._started().terminate()

    def send_kill(self) -> None:
        """Send the worker SIGKILL."""
        self._started().send_kill()

    def _started(self) -> Child:
        if self._child is None:
            raise RuntimeError("no worker was started here")
        return self._child

    # Outputs for another host ---------------------------------------------------

    def take(self, blocks: Sequence[BlockRecord]) -> list[Any]:
        """Return the bytes of blocks, as arrays over the worker's own pages.

        Ray copies them into the object store when this returns; then they are the worker's again.
        """
        import numpy

        exporters = self._lease(blocks)
        return [numpy.frombuffer(exporter, numpy.uint8) for exporter in exporters]

    def give_back(self, blocks: Sequence[BlockRecord]) -> None:
        """Let the worker have blocks again that nobody wants."""
        self._lease(blocks)

    def _lease(self, blocks: Sequence[BlockRecord]) -> list[Any]:
        with self._reading:
            if self._reader is None:
                assert self._arena_end is not None, "the driver maps the arena itself"
                self._reader = BlockReader.connect(self._arena_end)
                self._arena_end.close()  # the reader has its own copy
            return self._reader.lease_blocks(blocks)


def _connected(order: Order) -> tuple[socket.socket, bool]:
    """Return the worker's connection to the driver, and whether it is on this host."""
    if order.socket_path is not None:
        with contextlib.suppress(OSError, ChannelClosedError):  # another host's, or container's
            return _to_unix(order.socket_path, order.channel_token), True
    try:
        connection = socket.create_connection(order.address, _CONNECT_S)
    except OSError as error:
        host, port = order.address
        raise ChannelClosedError(
            f"{socket.gethostname()} cannot connect to the driver at {host}:{port} ({error}): "
            "let the nodes reach each other on all ports, as Ray needs it, too"
        ) from error
    present(connection, order.channel_token)
    return connection, False


def _to_unix(path: str, token: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_S)
        connection.connect(path)
        present(connection, token)
    except BaseException:
        connection.close()
        raise
    return connection


def _path(drivers: Sequence[str]) -> list[str]:
    """Return the worker's `sys.path`: the driver's that exists here, then this process's."""
    found = [entry for entry in drivers if os.path.exists(entry)]
    return [*found, *(entry for entry in spawning.own_path() if entry not in found)]
