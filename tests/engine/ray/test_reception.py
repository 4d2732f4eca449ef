"""Who may connect to the driver: whoever has a token, once."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_platforms import ChannelClosedError
from omni_platforms.engine.ray import reception as reception_module
from omni_platforms.engine.ray.reception import TOKEN_BYTES, Reception, present
from tests.engine.fakes import PATIENCE, until
from tests.shm.conftest import open_descriptors


@pytest.fixture(params=["abstract", "file"])
def reception(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reception]:
    monkeypatch.setattr(reception_module, "_ABSTRACT", request.param == "abstract")
    before = open_descriptors()
    made = Reception("127.0.0.1")
    yield made
    made.close()
    made.close()
    assert open_descriptors() == before
    if request.param == "file":
        assert not Path(made.path).parent.exists()


def by_tcp(reception: Reception) -> socket.socket:
    return socket.create_connection(reception.address, PATIENCE)


def by_unix(reception: Reception) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(reception.path)
    return connection


@pytest.mark.parametrize("way", [by_tcp, by_unix])
def test_a_token_opens_one_connection_both_ways(reception: Reception, way: object) -> None:
    ticket = reception.expect()
    with way(reception) as theirs:  # type: ignore[operator]
        present(theirs, ticket.token)
        with ticket.take(PATIENCE) as ours:
            theirs.sendall(b"hello")
            assert ours.recv(5) == b"hello"
            ours.sendall(b"back")
            assert theirs.recv(4) == b"back"
    with way(reception) as again, pytest.raises(ChannelClosedError, match="does not expect"):  # type: ignore[operator]
        present(again, ticket.token)


def test_a_stranger_is_refused_and_holds_nobody_up(
    reception: Reception, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = reception.expect()
    with by_tcp(reception) as silent, by_tcp(reception) as slow, by_tcp(reception) as stranger:
        slow.sendall(ticket.token[:10])
        with pytest.raises(ChannelClosedError):
            present(stranger, bytes(TOKEN_BYTES))
        assert "without a worker's token" in caplog.text
        assert silent.fileno() >= 0
        slow.settimeout(PATIENCE)
        slow.sendall(ticket.token[10:])
        assert slow.recv(1) == reception_module.ACCEPTED
        ticket.take(PATIENCE).close()


def test_who_says_nothing_is_sent_away(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception_module, "_HANDSHAKE_S", 0.05)
    with by_tcp(reception) as silent:
        silent.settimeout(PATIENCE)
        assert silent.recv(1) == b"", "closed by the reception"
    until(lambda: not reception._strangers)


def test_a_ticket_that_is_withdrawn_opens_nothing(reception: Reception) -> None:
    ticket = reception.expect()
    reception.withdraw(ticket)
    with by_tcp(reception) as theirs, pytest.raises(ChannelClosedError):
        present(theirs, ticket.token)
    with pytest.raises(ChannelClosedError, match="did not connect within"):
        ticket.take(0.01)


def test_the_socket_has_no_file_or_one_in_a_folder_of_this_user_alone(
    reception: Reception,
) -> None:
    if not reception.path.startswith("\0"):
        assert Path(reception.path).parent.stat().st_mode & 0o077 == 0


def test_another_user_of_this_host_is_refused(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the right token, too: the kernel says whose the other end is."""
    ticket = reception.expect()
    monkeypatch.setattr(reception_module.os, "getuid", lambda: 12345)
    with by_unix(reception) as theirs, pytest.raises(ChannelClosedError):
        present(theirs, ticket.token)


def test_a_forked_child_keeps_nothing_open(reception: Reception) -> None:
    child = os.fork()
    if child == 0:
        reception.leave_to_parent()
        os._exit(0 if not Path(f"/proc/self/fd/{reception._tcp.fileno()}").exists() else 1)
    assert os.waitpid(child, 0)[1] == 0
    ticket = reception.expect()
    with by_tcp(reception) as theirs:
        present(theirs, ticket.token)
        ticket.take(PATIENCE).close()


def test_a_dead_host_is_noticed_by_the_system(reception: Reception) -> None:
    """Keep-alive is on, and short: a host that loses its power sends no goodbye."""
    ticket = reception.expect()
    with by_tcp(reception) as theirs:
        present(theirs, ticket.token)
        with ticket.take(PATIENCE) as ours:
            for end in (ours, theirs):
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
                idle, between, count = (end.getsockopt(socket.IPPROTO_TCP, o) for o in options)
                assert idle + between * count <= 30, "seconds"


def test_many_connections_at_once(reception: Reception) -> None:
    tickets = [reception.expect() for _ in range(40)]
    connections = [by_tcp(reception) for _ in tickets]
    started = time.monotonic()
    for ticket, connection in zip(reversed(tickets), connections, strict=True):
        present(connection, ticket.token)
    for ticket in tickets:
        ticket.take(PATIENCE).close()
    for connection in connections:
        connection.close()
    assert time.monotonic() - started < PATIENCE
