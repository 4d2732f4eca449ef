"""`RayWorker`: the driver's handle of one worker somewhere in the cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
import time
import weakref
from typing import Any

from omni_platforms import settings
from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import Message, Setup, Started
from omni_platforms.engine.process import START_TIMEOUT, receive_started
from omni_platforms.engine.pump import FarView, View
from omni_platforms.engine.ray.agent import Agent, Exit, Order, Report
from omni_platforms.engine.ray.clock import ShiftedChannel, shift_of
from omni_platforms.engine.ray.library import is_connected, load_ray
from omni_platforms.engine.ray.placement import Slot
from omni_platforms.engine.ray.reception import Ticket
from omni_platforms.engine.ray.site import Site
from omni_platforms.engine.ray.store import StoreView
from omni_platforms.errors import ChannelClosedError, OmniError, WorkerStartError
from omni_platforms.shm import ArenaView

_AGENT_THREADS = 4  # one waits for the worker's end, the others serve calls
_COME_S = 10.0
_KILL_GRACE_S = 5.0
_ASK_AGAIN_S = 1.0
_UNREACHABLE = "ActorUnavailableError"  # of ray.exceptions: not dead, as far as Ray knows
_FACT = re.compile(r"(class_name|actor_id|pid|name|namespace|ip|repr): ")


class RayWorker:
    """One worker: its actor, the agent in it, its process, and the channel to that.

    Making one asks Ray for a place and does not wait: make several, then `wait_started` for
    each. Any thread may call the methods. `site` is where the executor's workers connect to.
    """

    exit_seen_s = 4.0
    """How long the cause of an end may take to arrive: Ray tells of a node late."""

    def __init__(self, setup: Setup, site: Site) -> None:
        self.setup = setup
        self.name = f"worker {setup.rank}"
        self.view: View | FarView | None = None
        self._channel: Channel | None = None
        self.report: Report | None = None
        self._site = site
        self._started_at = time.monotonic()
        self._tickets: list[Ticket] = []
        self._exit: Exit | None = None
        self._silent = ""
        """Why Ray could not reach the actor, the last time."""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._death, self._dying = os.pipe()
        self._slot: Slot = site.placement.take()
        self._actor = self._make_actor()
        _all.add(self)

    def __repr__(self) -> str:
        return f"<RayWorker {self.name}, pid {self.pid}: {self.state()}>"

    @property
    def pid(self) -> int:
        """The process's number on its host; 0 before it has one."""
        return 0 if self.report is None else self.report.pid

    @property
    def channel(self) -> Channel:
        """The channel to its process, once that has connected."""
        assert self._channel is not None, "it has not connected"
        return self._channel

    def _make_actor(self) -> Any:
        actor = load_ray().remote(Agent)
        options = {
            "num_cpus": self._site.bundle.get("CPU", 0),
            "num_gpus": self._site.bundle.get("GPU", 0),
            "resources": {k: v for k, v in self._site.bundle.items() if k not in ("CPU", "GPU")},
            "max_concurrency": _AGENT_THREADS,
            "max_restarts": 0,
            **self._slot.options(),
        }
        return actor.options(**options).remote()

    # The start ----------------------------------------------------------------

    def wait_started(self, timeout: float | None = None) -> Started:
        """Block until the worker is up, and return what it says about itself.

        It may take `timeout` seconds from its start (`OMNI_WORKER_START_TIMEOUT` when
        `None`), the wait for a place in the cluster included. Raises `WorkerStartError` after the
        process is gone and everything of it released.
        """
        limit: float = settings.read(START_TIMEOUT) if timeout is None else timeout
        try:
            return self._start(self._started_at + limit, limit)
        except BaseException:
            self.kill()
            self.close()
            raise

    def _start(self, deadline: float, limit: float) -> Started:
        self._site.placement.wait(self._slot, max(0.0, deadline - time.monotonic()))
        channel, arena = self._expect(2)
        report = self._order(channel, arena, deadline)
        self.report = report
        self._watch()
        self._channel = self._open_channel(channel, report)
        self._send_aside(self._setup_for(report))
        started = receive_started(self, deadline, limit)
        self.view = self._open_view(arena, report)
        self._withdraw()
        return started

    def _expect(self, count: int) -> list[Ticket]:
        self._tickets = [self._site.reception.expect() for _ in range(count)]
        return self._tickets

    def _withdraw(self) -> None:
        for ticket in self._tickets:
            self._site.reception.withdraw(ticket)
        self._tickets = []

    def _order(self, channel: Ticket, arena: Ticket, deadline: float) -> Report:
        """Have the agent start the process."""
        ray = load_ray()
        order = Order(
            self.name,
            self._site.platform,
            self._site.reception.path if self._site.shares_memory else None,
            self._site.reception.address,
            channel.token,
            arena.token,
            self._site.environment,
            self._site.path,
            self._site.folder,
        )
        try:
            report: Report = ray.get(
                self._actor.start.remote(order), timeout=max(0.1, deadline - time.monotonic())
            )
        except Exception as error:
            cause = getattr(error, "cause", None)
            what = cause if isinstance(cause, OmniError) else _first_lines(error)
            raise WorkerStartError(
                f"{self.name} ({self.setup.worker}) could not be started by Ray: {what}. Is the "
                "same release of omni-platforms, with its extra ray, installed on every node?"
            ) from error
        return report

    def _open_channel(self, ticket: Ticket, report: Report) -> Channel:
        channel = ShiftedChannel(ticket.take(_COME_S), self._death)
        if not report.shares_memory and self._site.is_other_host(report.host):
            channel.shift = shift_of(self._actor)
        return channel

    def _setup_for(self, report: Report) -> Setup:
        index = report.device_index
        if index is None:
            index = self._site.allot_device(self, report.node)
        announces = report.shares_memory
        self.setup = dataclasses.replace(self.setup, device_index=index, announces=announces)
        return self.setup

    def _open_view(self, arena: Ticket, report: Report) -> View | FarView:
        if report.shares_memory:
            end = arena.take(_COME_S)
            view = ArenaView.connect(end)
            end.close()  # the view has its own copy
            return view
        actor, ray = self._actor, load_ray()
        return StoreView(
            self.name,
            lambda blocks: ray.get(actor.take.remote(blocks)),
            lambda blocks: actor.give_back.remote(blocks),
            self._site.budget,
        )

    def _send_aside(self, message: Message) -> None:
        """Send from a thread: a worker that does not read must not block the driver."""
        channel = self.channel

        def send() -> None:
            with contextlib.suppress(ChannelClosedError):  # its death is seen elsewhere
                channel.send(message)

        threading.Thread(target=send, name=f"omni-to-{self.name}", daemon=True).start()

    # Its life and its end -----------------------------------------------------

    def _watch(self) -> None:
        """Be told when the process, its actor or its node is gone."""
        if self._exit is not None or not is_connected():
            return
        waiting = self._actor.wait_exit.remote().future()
        waiting.add_done_callback(self._on_exit)

    def _on_exit(self, waiting: Any) -> None:
        error = waiting.exception()
        if error is None:
            self._note_exit(waiting.result())
        elif type(error).__name__ == _UNREACHABLE:
            # It may live: a connection of Ray's broke, and ours tells what became of the worker.
            self._silent = _first_lines(error)
            again = threading.Timer(_ASK_AGAIN_S, self._watch)
            again.daemon = True
            again.start()
        else:
            self._note_exit(Exit(_first_lines(error), ""))

    def _note_exit(self, how: Exit) -> None:
        with self._lock:
            if self._exit is not None:
                return
            self._exit = how
            dying, self._dying = self._dying, -1
        os.close(dying)  # whoever receives from it is woken
        self._ended.set()

    def is_alive(self) -> bool:
        """Whether the process runs, as far as Ray has said. Does not block."""
        return self._exit is None

    def state(self) -> str:
        """Return in words whether it runs or how it, its actor or its node ended."""
        if self._exit is not None:
            return self._exit.how
        return f"its actor does not answer: {self._silent}" if self._silent else "running"

    def printed_note(self) -> str:
        """Return the last lines that it printed as the end of a message, or nothing."""
        return "" if self._exit is None else self._exit.printed

    def wait_exit(self, timeout: float | None = None) -> bool:
        """Block until it has ended, at most `timeout` seconds; return whether it has."""
        return self._ended.wait(timeout)

    def ask_to_stop(self, timeout: float) -> None:
        """Not used: the crew sends `Stop` in its place among other messages."""
        raise NotImplementedError("send Stop over the channel")

    def terminate(self) -> None:
        """Have the agent send SIGTERM. Does not block."""
        self._tell("terminate")

    def send_kill(self) -> None:
        """Have the agent send SIGKILL, and its actor ended. Does not block."""
        if self.report is None:
            self._end_actor("killed while it started")
        elif self._silent:
            self._end_actor(self.state())
        else:
            self._tell("send_kill")

    def kill(self) -> bool:
        """End the process, by way of its actor if need be; return whether it is gone."""
        self.send_kill()
        if not self.wait_exit(_KILL_GRACE_S):
            self._end_actor("its actor was killed")
        return True

    def _tell(self, method: str) -> None:
        if self._exit is None and is_connected():
            getattr(self._actor, method).remote()

    def _end_actor(self, how: str) -> None:
        if is_connected():
            load_ray().kill(self._actor)
        self._note_exit(Exit(how, ""))

    def close(self) -> None:
        """Let go of the actor, its place, the channel and the view. Results stay valid."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _all.discard(self)
        self._withdraw()
        if self._channel is not None:
            self._channel.close()
        if isinstance(self.view, StoreView | ArenaView):
            self.view.close()
        self._end_actor("its actor was ended")
        self._site.leave(self)
        self._site.placement.give_back(self._slot)
        os.close(self._death)

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies, so that it keeps no worker alive."""
        self._closed = True
        if self._channel is not None:
            self._channel.leave_to_parent()
        for descriptor in (self._death, self._dying):
            if descriptor >= 0:
                os.close(descriptor)


def _first_lines(error: BaseException) -> str:
    """Return what Ray says of an actor's end, without its numbers and the advice that follows."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _FACT.match(line)]
    return " ".join(said[:3]) or type(error).__name__


_all: weakref.WeakSet[RayWorker] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for worker in list(_all):
        worker.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
