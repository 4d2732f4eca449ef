"""The start and the end of a worker's process."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import Ended, Setup, Started
from omni_platforms.engine.worker import lifeline
from omni_platforms.errors import ChannelBrokenError, ChannelClosedError

if TYPE_CHECKING:
    from omni_platforms.engine.worker.start import Parts

FAILED = 70
"""The exit status of a worker that ended before it was asked to (EX_SOFTWARE of sysexits.h)."""


def main() -> None:
    """Be a worker. The arguments are descriptors: the channel, the arena's socket, the lifeline."""
    channel_end, arena_end, lifeline_end = map(int, sys.argv[1:4])
    del sys.argv[1:]  # they are nothing to the user's code
    lifeline.hold(lifeline_end)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it stops its workers
    for end in (channel_end, arena_end):
        os.set_inheritable(end, False)
    channel = Channel(socket.socket(fileno=channel_end))
    _keep_from_children(channel, lifeline_end)
    sys.exit(_work(channel, socket.socket(fileno=arena_end)))


def _keep_from_children(channel: Channel, lifeline_end: int) -> None:
    """Let forked children of this process hold neither the channel nor the lifeline open."""

    def leave() -> None:
        channel.leave_to_parent()
        os.close(lifeline_end)

    os.register_at_fork(after_in_child=leave)


def _work(channel: Channel, arena_socket: socket.socket) -> int:
    """Start up, run until stopped, say the last word, and return the exit status."""
    try:
        parts = _started(channel, arena_socket)
        if parts is None:
            return FAILED
        parts.loop.run()
        parts.finish()
        channel.send(Ended())
    except ChannelClosedError:
        return FAILED  # the parent is gone
    except BaseException as error:
        channel.send(Ended(ErrorRecord.of(error)))
        raise
    return 0


def _started(channel: Channel, arena_socket: socket.socket) -> Parts | None:
    """Make everything and say so, or say why not and return `None`."""
    try:
        setup = channel.receive()
        if not isinstance(setup, Setup):
            raise ChannelBrokenError(f"a worker's first message is no {type(setup).__name__}")
        from omni_platforms.engine.worker.start import start

        parts = start(setup, channel, arena_socket)
    except ChannelClosedError:
        raise
    except BaseException as error:  # noqa: BLE001  the parent raises it
        traceback.print_exc()
        channel.send(Started(ErrorRecord.of(error)))
        return None
    channel.send(parts.describe())
    parts.inbox.start()
    return parts
