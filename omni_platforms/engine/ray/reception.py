"""`Reception`: where workers on other nodes, and on this one, connect to this process.

Who connects says a token of 32 random bytes, which only the agent of the expected worker has, by
way of Ray; it is good once. Only then is anything read as a message. The bytes are not
encrypted, as Ray's are not by default: a cluster belongs into a network of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import select
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time

from omni_platforms.errors import ChannelClosedError

logger = logging.getLogger(__name__)

TOKEN_BYTES = 32
ACCEPTED = b"\x01"
_HANDSHAKE_S = 10.0
_MOST_STRANGERS = 256
_ABSTRACT = sys.platform == "linux"


class Ticket:
    """One connection that is expected."""

    def __init__(self) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._come = threading.Event()
        self._connection: socket.socket | None = None

    def arrived(self, connection: socket.socket) -> None:
        """Hand the connection over."""
        self._connection = connection
        self._come.set()

    def take(self, timeout: float) -> socket.socket:
        """Block until it is here, at most `timeout` seconds. Raises `ChannelClosedError`."""
        if not self._come.wait(timeout) or self._connection is None:
            raise ChannelClosedError(f"a worker's process did not connect within {timeout} s")
        connection, self._connection = self._connection, None
        return connection

    def close(self) -> None:
        """Close a connection that nobody took."""
        if self._connection is not None:
            self._connection.close()


class Reception:
    """Listens on a Unix socket, for workers of this host, and on a TCP port of `host`.

    One thread of its own; any may call the methods. Raises `OSError` when it cannot listen.
    """

    def __init__(self, host: str) -> None:
        self._folder = "" if _ABSTRACT else tempfile.mkdtemp(prefix="omni-")
        self.path = _new_name(self._folder)
        """Of the Unix socket. On Linux no file: nothing is left, however this process ends."""
        self._tickets: dict[bytes, Ticket] = {}
        self._strangers: dict[int, tuple[socket.socket, bytes, float]] = {}
        self._waking, self._wake = os.pipe()
        self._process = os.getpid()
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._unix.bind(self.path)
            self._unix.listen(128)
            self._tcp = socket.create_server((host, 0), backlog=1024)
        except BaseException:
            self._unix.close()
            self._close_rest()
            raise
        self.address: tuple[str, int] = self._tcp.getsockname()[:2]
        """Host and port of the TCP socket."""
        self._thread = threading.Thread(target=self._run, name="omni-reception", daemon=True)
        self._thread.start()

    def expect(self) -> Ticket:
        """Expect one connection; return the ticket for it."""
        ticket = Ticket()
        self._tickets[_key(ticket.token)] = ticket
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Expect a connection no more. Does nothing to one that was taken."""
        self._tickets.pop(_key(ticket.token), None)
        ticket.close()

    def close(self) -> None:
        """Stop to listen. Connections that came are their takers'. Safe to call again."""
        wake, self._wake = self._wake, -1
        if wake < 0 or os.getpid() != self._process:
            return
        os.close(wake)
        self._thread.join()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies, and nothing else."""
        for end in (self._unix, self._tcp, *(s for s, _, _ in self._strangers.values())):
            if end.fileno() >= 0:
                os.close(end.detach())
        self._close_rest()

    def _close_rest(self) -> None:
        for descriptor in (self._waking, self._wake):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    # The thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._serve_one():
                pass
        except OSError as error:
            logger.error("no further worker can connect: %s", error)
        finally:
            for end in (self._unix, self._tcp, *(s for s, _, _ in self._strangers.values())):
                end.close()
            os.close(self._waking)

    def _serve_one(self) -> bool:
        """Wait for something to come, and take it in; return whether to go on."""
        listening = {self._unix.fileno(): self._unix, self._tcp.fileno(): self._tcp}
        poller = select.poll()
        for descriptor in (self._waking, *listening, *self._strangers):
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(_HANDSHAKE_S * 1e3 if self._strangers else None):
            if descriptor == self._waking:
                return False
            if descriptor in listening:
                self._accept(listening[descriptor])
            else:
                self._read_token(descriptor)
        self._send_away_silent_ones()
        return True

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if len(self._strangers) >= _MOST_STRANGERS or not _is_of_this_user(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._strangers[connection.fileno()] = connection, b"", time.monotonic()

    def _read_token(self, descriptor: int) -> None:
        connection, said, since = self._strangers[descriptor]
        try:
            more = connection.recv(TOKEN_BYTES - len(said))
        except OSError:
            more = b""
        said += more
        if more and len(said) < TOKEN_BYTES:
            self._strangers[descriptor] = connection, said, since
            return
        del self._strangers[descriptor]
        ticket = self._tickets.pop(_key(said), None)
        if ticket is None:
            logger.warning("a connection without a worker's token was refused")
            connection.close()
            return
        self._welcome(connection, ticket)

    def _welcome(self, connection: socket.socket, ticket: Ticket) -> None:
        connection.setblocking(True)
        prepare(connection)
        try:
            connection.sendall(ACCEPTED)
        except OSError:  # gone already: whoever waits is told by its agent
            connection.close()
            return
        ticket.arrived(connection)

    def _send_away_silent_ones(self) -> None:
        since = time.monotonic() - _HANDSHAKE_S
        for descriptor, (connection, _, come) in list(self._strangers.items()):
            if come < since:
                del self._strangers[descriptor]
                connection.close()


def present(connection: socket.socket, token: bytes) -> None:
    """Say the token on a new connection. Raises `ChannelClosedError` when it is refused."""
    connection.settimeout(_HANDSHAKE_S)
    try:
        connection.sendall(token)
        answer = connection.recv(1)
    except OSError as error:
        raise ChannelClosedError(f"the driver did not answer: {error}") from error
    if answer != ACCEPTED:
        raise ChannelClosedError("the driver does not expect this worker any more")
    connection.settimeout(None)
    prepare(connection)


def prepare(connection: socket.socket) -> None:
    """Let a TCP connection send at once, and notice within half a minute that a host is gone."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 10),  # seconds
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 25_000),  # milliseconds, for bytes that nobody acknowledges
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _new_name(folder: str) -> str:
    return f"{folder}/s" if folder else f"\0omni-{secrets.token_hex(16)}"


def _is_of_this_user(connection: socket.socket) -> bool:
    """Whether the kernel says so; a TCP connection has no user, and its token alone."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return True
    form = struct.Struct("iII")
    _, user, _ = form.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size)
    )
    return bool(user == os.getuid())


def _key(token: bytes) -> bytes:
    """Return what a token is looked up by: time tells nothing about a digest's token."""
    return hashlib.sha256(token).digest()
