"""The output thread: waits for the copies that the main thread started, and sends what arrived.

`submit`, on the main thread, makes the copies follow the forward on the device,
and returns at once; the next forward starts. Nothing here keeps an output, or a
device tensor of it, once it is sent, failed or dropped.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import preview_id
from omni_platforms.engine.payload import Blob
from omni_platforms.engine.worker.device_loss import lost_device
from omni_platforms.engine.worker.forgetting import forget
from omni_platforms.engine.worker.numa import run_near
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.engine.worker.room import Room
from omni_platforms.engine.worker.snapshots import snapshots
from omni_platforms.engine.worker.work import Phase, WorkTable
from omni_platforms.errors import ArenaFullError, ChannelClosedError, DrainTimeoutError
from omni_platforms.platform.waiting import spare_others, use_exact_pauses, waiting_for
from omni_platforms.shm import Arena, Packet, Packing

logger = logging.getLogger(__name__)


@dataclass
class Outgoing:
    """An output, or a preview, whose copies are under way; without a packing: none is wanted."""

    name: str
    packing: Packing | None
    gate: torch.Event | None = None
    step: int | None = None
    """Of a preview: after which step."""


class OutputThread:
    """The thread, and the ways of the main thread to it."""

    def __init__(
        self,
        arena: Arena,
        room: Room,
        table: WorkTable,
        reporter: Reporter,
        main_is_idle: Callable[[], bool],
        borrow: bool = False,
        max_in_flight: int = 4,
        announces: bool = True,
    ) -> None:
        self._platform = arena.platform
        self._device = arena.device
        self._arena = arena
        self._room = room
        self._table = table
        self._reporter = reporter
        self._main_is_idle = main_is_idle
        self._borrow = borrow
        self._most = max(1, max_in_flight)
        self._announces = announces
        self._queue: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._changed = threading.Condition(threading.Lock())
        self._unfinished = 0
        self._thread = threading.Thread(target=self._run, name="omni-outputs", daemon=True)
        self._thread.start()

    # The main thread ----------------------------------------------------------

    def submit(self, name: str, nest: Any) -> None:
        """Hand an output over. An error is the output's: it is sent.

        Blocks only for host copies, while the device is `max_in_flight` outputs
        behind, and for room where that was asked for.
        """
        try:
            if self._borrow:
                nest = snapshots(nest)
            gate = self._platform.record_device_event(self._platform.current_stream(self._device))
            self._table.enter(name, Phase.ROOM)
            self._await_fewer()
            packing = self._room.start(nest, gate, lambda: self._table.wanted(name), name)
        except Exception as error:  # noqa: BLE001  it fails this one output
            self.failed(name, error)
            return
        self._table.enter(name, Phase.GATE)
        self._put(Outgoing(name, packing, gate))

    def submit_preview(self, name: str, step: int, nest: Any) -> bool:
        """Hand a preview over, of a value that may be overwritten afterwards.

        Returns whether there was room: it never waits.
        """
        try:
            packing = self._room.start_now(snapshots(nest), preview_id(name, step))
        except ArenaFullError:
            return False
        except Exception as error:  # noqa: BLE001  it fails this one preview
            self._settle_device(error)
            self._reporter.preview(name, step, error=ErrorRecord.of(error))
            return True
        self._put(Outgoing(name, packing, step=step))
        return True

    def failed(self, name: str, error: BaseException) -> None:
        """Fail an output that was computed."""
        self._settle_device(error)
        self._reporter.output_failed(name, error)
        forget(error)

    def give_up(self, name: str) -> None:
        """Acknowledge that an output was dropped, behind the previews of it that are under way."""
        self._put(Outgoing(name, None))

    def drain(self, timeout: float) -> None:
        """Block until nothing is under way, at most `timeout` seconds.

        Raises `DrainTimeoutError`: then device memory must not be released.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: not self._unfinished, max(0.0, timeout))
            left = self._unfinished
        if not done:
            rows = self._table.describe()[:8]
            raise DrainTimeoutError(
                f"{left} outputs were still in flight after {timeout} s: {rows}. Their device "
                "memory must not be released; try again, with a longer timeout."
            )
        self._collect()
        if self._arena.stats().retired:
            raise DrainTimeoutError(
                f"{self._device} does not say whether it still reads outputs that were given up, "
                "so nothing may be released. It probably is lost: start the executor anew."
            )

    def stop(self) -> None:
        """End the thread behind what is under way. Does not block."""
        self._queue.put(None)

    def join(self, timeout: float) -> bool:
        """Block until the thread has ended, at most `timeout` seconds; return whether it has."""
        self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _await_fewer(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished < self._most)

    def _put(self, outgoing: Outgoing) -> None:
        with self._changed:
            self._unfinished += 1
        self._queue.put(outgoing)

    # The thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._platform.set_device(self._device)
            run_near(self._arena.stats().numa_node)
            use_exact_pauses()
            spare_others(lambda: not self._main_is_idle())
            while (outgoing := self._queue.get()) is not None:
                self.deliver(outgoing)
                del outgoing  # an idle thread must not keep the last output alive
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()
        except ChannelClosedError:
            return  # the parent is gone: the lifeline ends this process
        except BaseException as error:  # noqa: BLE001  whatever it is, nothing arrives any more
            self._reporter.end_now(error)

    def deliver(self, outgoing: Outgoing) -> None:
        """Wait for one output's copy and send it. Observers put their step around it."""
        packing = outgoing.packing
        if packing is None:
            self._reporter.finished(outgoing.name)
            return
        try:
            self._await_copy(outgoing, packing)
        except Exception as error:  # noqa: BLE001  it fails this one output
            self._give_back(packing)
            self._fail(outgoing, error)

    def _await_copy(self, outgoing: Outgoing, packing: Packing) -> None:
        name, is_output = outgoing.name, outgoing.step is None
        announced = is_output and packing.done is not None and self._announce(name, packing)
        if outgoing.gate is not None and packing.done is not None:
            with waiting_for("computing"):
                self._platform.synchronize_event(outgoing.gate)
        if not self._enter(outgoing, Phase.COPY):
            self._throw_away(packing)
        else:
            with waiting_for("copying"):
                packet = packing.wait()
            if self._enter(outgoing, Phase.SEND):
                self._send(outgoing, None if announced else packet)
                return
            if not announced:
                self._arena.discard(packet)
        if is_output:
            self._reporter.finished(name)
        self._room.wake()

    def _announce(self, name: str, packing: Packing) -> bool:
        """Let the parent unpack an output while the device writes it; return whether it may.

        Only where the main thread has nothing to compute: it takes the interpreter's lock
        from whoever launches a forward, for an output that comes a little sooner. What is
        announced is the parent's to give back, whatever becomes of the output.
        """
        if not (self._announces and self._main_is_idle() and self._table.wanted(name)):
            return False
        packet = packing.announce()
        if packet is None:
            return False
        try:
            self._reporter.coming(name, Blob(packet.data))
        except BaseException:
            self._arena.discard(packet)  # nobody will unpack it
            raise
        return True

    def _enter(self, outgoing: Outgoing, phase: Phase) -> bool:
        """Move an output on; return whether it, or the request of a preview, is still wanted."""
        if outgoing.step is None:
            return self._table.enter(outgoing.name, phase)
        return self._table.wanted(outgoing.name)

    def _send(self, outgoing: Outgoing, packet: Packet | None) -> None:
        blob = None if packet is None else Blob(packet.data)
        try:
            if outgoing.step is None:
                self._reporter.output(outgoing.name, blob)
            else:
                self._reporter.preview(outgoing.name, outgoing.step, packet=blob)
        except BaseException:
            if packet is not None:
                self._arena.discard(packet)  # nobody will unpack it
            raise

    def _fail(self, outgoing: Outgoing, error: Exception) -> None:
        if isinstance(error, ChannelClosedError):
            raise error
        if outgoing.step is None:
            self.failed(outgoing.name, error)
        elif self._table.wanted(outgoing.name):
            self._settle_device(error)
            self._reporter.preview(outgoing.name, outgoing.step, error=ErrorRecord.of(error))

    def _throw_away(self, packing: Packing) -> None:
        """Let the device finish an output that nobody wants, then give its blocks back."""
        if packing.done is not None:
            self._platform.synchronize_event(packing.done)
        self._give_back(packing)

    def _give_back(self, packing: Packing) -> None:
        packing.drop()
        self._collect()

    # Both ---------------------------------------------------------------------

    def _settle_device(self, error: BaseException) -> None:
        """End the worker when its device is lost; otherwise let go of what the copies used."""
        lost = lost_device(error, self._platform, self._device)
        if lost is not None:
            self._reporter.end_now(lost)
        self._collect()

    def _collect(self) -> None:
        """Free what was given up; what the device still writes is waited for."""
        if self._arena.stats().retired:
            try:
                self._platform.synchronize(self._device)
            except Exception as error:  # noqa: BLE001  `lost_device` decides what it means
                logger.warning("waiting for %s failed: %s", self._device, str(error))
            self._arena.stats()
        self._room.wake()  # it took in what came back meanwhile, of which nobody else hears
