"""Making the parts of a worker, in order: platform, device, the user's object, the arena."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

import torch

from omni_platforms import observers
from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import Setup, Started
from omni_platforms.engine.worker.inbox import Inbox
from omni_platforms.engine.worker.loop import MainLoop
from omni_platforms.engine.worker.output_thread import OutputThread
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.engine.worker.room import Room
from omni_platforms.engine.worker.work import WorkTable
from omni_platforms.engine.worker.worker_class import make_worker
from omni_platforms.errors import DrainTimeoutError, WorkerStartError
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.selection import current_platform
from omni_platforms.shm import Arena
from omni_platforms.shm.arena import SEGMENT_BYTES
from omni_platforms.shm.growth import default_cap

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Parts:
    """A worker that is up."""

    worker: Any
    arena: Arena
    room: Room
    inbox: Inbox
    table: WorkTable
    outputs: OutputThread
    loop: MainLoop
    rank: int

    def describe(self) -> Started:
        """Return what the parent is told."""
        stats = self.arena.stats()
        return Started(
            platform=self.arena.platform.name,
            device=str(self.arena.device),
            numa_node=stats.numa_node,
            registered=stats.registered,
            arena_bytes=stats.total_bytes,
            arena_cap=stats.cap,
        )

    def finish(self) -> None:
        """Deliver what is under way, let the user's object end, release the memory.

        Blocks until the time that `Stop` set at most, beside what the user's `shutdown` takes.
        """
        deadline = self.room.stop_at or time.monotonic()
        self.outputs.stop()
        if not self.outputs.join(deadline - time.monotonic()):
            # The parent fails these by name; at its exit nobody wants to hear of them.
            logger.info("the time to stop is over: the worker ends with outputs under way")
        try:
            if hasattr(self.worker, "shutdown"):
                self.worker.shutdown()
        except Exception:
            logger.exception("the worker's shutdown() failed")
        try:
            self.arena.close(max(0.0, deadline - time.monotonic()))
        except DrainTimeoutError as error:
            logger.info("shared memory is left to the end of the process: %s", error)


def start(setup: Setup, channel: Channel, arena_socket: socket.socket) -> Parts:
    """Make all parts; the reader is not started yet. Blocks for as long as the model loads.

    Raises what the platform, the user's class and the arena raise.
    """
    platform = current_platform()
    device = device_of(setup, platform)
    platform.set_device(device)
    worker = make_worker(setup, device)
    # After the model, so that its share is one of the memory that is left.
    arena = Arena(
        platform,
        device,
        cap=cap_of(setup),
        segment_bytes=setup.arena_segment_bytes or SEGMENT_BYTES,
        initial_bytes=setup.arena_initial_bytes,
    )
    arena.connect(arena_socket)
    arena_socket.close()  # the arena has its own copy
    return _assemble(setup, channel, worker, arena)


def cap_of(setup: Setup) -> int | None:
    """Return the arena's cap; the default one of a single worker is the arena's own."""
    if setup.arena_cap is not None or setup.arena_shares == 1:
        return setup.arena_cap
    return default_cap() // setup.arena_shares


def device_of(setup: Setup, platform: OmniPlatform) -> torch.device:
    """Return the worker's device. Raises `WorkerStartError` for one that is not there."""
    count = platform.device_count()
    if platform.device_type != "cpu" and not 0 <= setup.device_index < count:
        variable = platform.device_control_env_var or ""
        limit = f" ({variable}={os.environ[variable]})" if variable in os.environ else ""
        raise WorkerStartError(
            f"rank {setup.rank} is to use device {setup.device_index}, and this process sees "
            f"{count} of platform {platform.name!r}{limit}: start fewer workers, or name devices"
        )
    return platform.device(setup.device_index)


def _assemble(setup: Setup, channel: Channel, worker: Any, arena: Arena) -> Parts:
    table = WorkTable()
    reporter = Reporter(channel, table)
    room = Room(arena, setup.block_when_full, setup.room_timeout)
    inbox = Inbox(channel, table, room, reporter)
    borrow = bool(getattr(worker, "borrow_outputs", False))
    outputs = OutputThread(
        arena,
        room,
        table,
        reporter,
        inbox.main_is_idle,
        borrow,
        setup.max_in_flight,
        announces=setup.announces,
    )
    loop = MainLoop(worker, setup, arena, table, room, inbox, outputs, reporter)
    parts = Parts(worker, arena, room, inbox, table, outputs, loop, setup.rank)
    observers.announce("worker", parts)
    return parts
