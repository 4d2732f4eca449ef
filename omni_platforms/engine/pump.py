"""`ResultPump`: the thread that alone receives what one worker sends.

One bad message costs one output. What ends the pump (the worker's end, bytes
that are no messages, or a bug) is reported, whatever it is: nobody waits for a dead pump.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.ledger_records import Origin, Outcome
from omni_platforms.engine.messages import AsyncOutput, Ended, Kind, Message, request_of
from omni_platforms.engine.payload import Pickled
from omni_platforms.errors import (
    ChannelBrokenError,
    CorruptMessageError,
    OmniError,
    SharedMemoryError,
)

logger = logging.getLogger(__name__)


class View(Protocol):
    """The consumer's side of the worker's arena.

    `unpacked_count` nests were unpacked so far, with `unpacked_bytes` of tensors and arrays.
    """

    unpacked_count: int
    unpacked_bytes: int

    def unpack(self, packet: Any) -> Any:
        """Return the output of a packet."""

    def discard(self, packet: Any) -> None:
        """Give the blocks of a packet back."""

    def refresh(self) -> None:
        """Unmap what the worker has given back. Does not block."""


class FarView(ABC):
    """A view of an arena on another host: its outputs are fetched, which takes time.

    `unpacked_count` nests were fetched so far, with `unpacked_bytes` of tensors and arrays.
    """

    unpacked_count = 0
    unpacked_bytes = 0

    @abstractmethod
    def fetch(self, packet: Any, deliver: Callable[[Outcome], None]) -> None:
        """Have `deliver` called with the output of a packet, from any thread. Does not block."""

    @abstractmethod
    def discard(self, packet: Any) -> None:
        """Give the blocks of a packet back."""

    @abstractmethod
    def refresh(self) -> None:
        """Unmap what the worker has given back. Does not block."""

    @abstractmethod
    def finish(self) -> None:
        """Let what is being fetched come to its end; nothing is fetched any more."""


class Receiver(Protocol):
    """Who is told what a worker said. All methods may be called from any thread."""

    def compute_done(self, rank: int, message: AsyncOutput, error: BaseException | None) -> None:
        """A forward has ended, or failed."""

    def expects(self, output_id: str) -> bool:
        """Whether somebody may still want an output."""

    def ready(self, output_id: str, outcome: Outcome) -> None:
        """An output, or its error, is here."""

    def unreadable(self, rank: int, packet_id: str, output_id: str) -> None:
        """The packet of an output, or of a preview of it, is lost; nothing of it was leased."""

    def late(self) -> None:
        """An output is here that nobody wants."""

    def previewed(self, rank: int, output_id: str, step: int | None, value: Any) -> None:
        """A preview is here; `None` for one that could not be read."""

    def replied(self, rank: int, call_id: str, outcome: Outcome) -> None:
        """A call was answered; the value is a `Pickled`."""

    def dropped(self, rank: int, output_id: str) -> None:
        """A worker has dropped what it was told to drop."""


class ResultPump:
    """Receives from `channel` until its end. `ended(cause)` is called once, on its thread."""

    def __init__(
        self,
        rank: int,
        channel: Channel,
        view: View | FarView,
        receiver: Receiver,
        ended: Callable[[BaseException], None],
    ) -> None:
        self._rank = rank
        self._channel = channel
        self._view = view
        self._receiver = receiver
        self._ended = ended
        self._coming: dict[str, Outcome] = {}
        """Outputs that are unpacked, and not ready."""
        self.last_word: Ended | None = None
        """The worker's own report of its end."""
        self.thread = threading.Thread(target=self._run, name=f"omni-pump-{rank}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self._step()
        except BaseException as cause:  # noqa: BLE001  whatever it is, it is reported
            self._coming.clear()
            if isinstance(self._view, FarView):
                self._view.finish()  # what had arrived is delivered before the end is known
            self._ended(cause.with_traceback(None))  # frames would keep the last output

    def _step(self) -> None:
        """Receive and handle one message. No output is held when it returns."""
        try:
            message = self._channel.receive()
        except CorruptMessageError as error:
            if error.message_id is None:
                raise  # somebody waits for it, and cannot be told
            self._handle_damaged(error.message_id, error.kind, error)
        else:
            self.handle(message)

    def handle(self, message: Message) -> None:
        """Enter one message, on the pump's thread. Observers put their step around it."""
        if isinstance(message, Ended):
            self.last_word = message
        elif not isinstance(message, AsyncOutput):
            logger.warning("worker %d sent %s, which is for workers", self._rank, message.kind.name)
        elif message.kind is Kind.COMPUTE_DONE:
            self._receiver.compute_done(self._rank, message, _error_of(message))
        elif message.kind is Kind.OUTPUT_READY:
            self._output(message)
        elif message.kind is Kind.OUTPUT_COMING:
            self._announced(message)
        elif message.kind is Kind.PREVIEW:
            self._preview(message)
        elif message.kind is Kind.RPC_RESULT:
            outcome = Outcome(message.result, _error_of(message))
            self._receiver.replied(self._rank, message.id, outcome)
        else:
            self._coming.pop(message.id, None)
            self._receiver.dropped(self._rank, message.id)

    def _handle_damaged(self, message_id: str, kind: int | None, error: BaseException) -> None:
        """A message whose id is all that can be read fails what it stood for."""
        if kind == Kind.COMPUTE_DONE:
            empty = AsyncOutput(Kind.COMPUTE_DONE, message_id)
            self._receiver.compute_done(self._rank, empty, error)
        elif kind == Kind.RPC_RESULT:
            self._receiver.replied(self._rank, message_id, Outcome(error=error))
        elif kind == Kind.DROPPED:
            self._receiver.dropped(self._rank, message_id)
        elif kind == Kind.PREVIEW:
            self._lost(message_id, request_of(message_id))
            self._receiver.previewed(self._rank, request_of(message_id), None, None)
        else:
            # What had come of it goes as any result does, and its leases with it.
            if self._coming.pop(message_id, None) is None:
                self._lost(message_id, message_id)
            self._receiver.ready(message_id, Outcome(error=error))

    def _lost(self, packet_id: str, output_id: str) -> None:
        self._receiver.unreadable(self._rank, packet_id, output_id)

    def _announced(self, message: AsyncOutput) -> None:
        """Unpack an output that the device is still writing; nobody sees it until it is ready."""
        if isinstance(self._view, FarView):
            raise ChannelBrokenError("an output was announced that has to be fetched")
        if self._receiver.expects(message.id):
            self._coming[message.id] = self._unpacked(message, message.id)
        else:
            self._discard(message)

    def _output(self, message: AsyncOutput) -> None:
        coming = self._coming.pop(message.id, None)
        if not self._receiver.expects(message.id):
            self._discard(message)
            self._receiver.late()
            return
        origin = Origin(self._rank, message.stamps)

        def deliver(outcome: Outcome) -> None:
            self._receiver.ready(message.id, outcome._replace(origin=origin))

        if coming is None or message.error is not None:
            self._unpack(message, message.id, deliver)
        else:
            deliver(coming)

    def _preview(self, message: AsyncOutput) -> None:
        request_id = request_of(message.id)

        def deliver(outcome: Outcome) -> None:
            if outcome.error is not None:
                logger.warning("request %s lacks a preview: %s", request_id, outcome.error)
            self._receiver.previewed(self._rank, request_id, message.step, outcome.value)

        self._unpack(message, request_id, deliver)

    def _unpack(
        self, message: AsyncOutput, output_id: str, deliver: Callable[[Outcome], None]
    ) -> None:
        view = self._view
        if isinstance(view, FarView) and message.error is None and message.packet is not None:
            view.fetch(message.packet.data, lambda o: deliver(self._checked(o, message, output_id)))
        else:
            deliver(self._unpacked(message, output_id))

    def _unpacked(self, message: AsyncOutput, output_id: str) -> Outcome:
        if message.error is not None:
            return Outcome(error=message.error.restore())
        if message.packet is None or isinstance(self._view, FarView):
            return Outcome(error=CorruptMessageError(f"output {message.id!r} has no packet"))
        try:
            return Outcome(self._view.unpack(message.packet.data))
        except Exception as error:  # noqa: BLE001  also of users' classes: it fails this one output
            return self._checked(Outcome(error=error.with_traceback(None)), message, output_id)

    def _checked(self, outcome: Outcome, message: AsyncOutput, output_id: str) -> Outcome:
        """Tell the worker of a packet that could not be read, before its output is settled."""
        if isinstance(outcome.error, SharedMemoryError) and outcome.error.untouched:
            self._lost(message.id, output_id)
        return outcome

    def _discard(self, message: AsyncOutput) -> None:
        try:
            if message.packet is not None:
                self._view.discard(message.packet.data)
        except OmniError as error:
            logger.warning("output %s, which nobody wants, is damaged: %s", message.id, error)
            if isinstance(error, SharedMemoryError) and error.untouched:
                self._lost(message.id, message.id)


def _error_of(message: AsyncOutput) -> BaseException | None:
    return None if message.error is None else message.error.restore()


def loaded(outcome: Outcome) -> Outcome:
    """Return a call's outcome with its value unpickled: in the caller's thread, not the pump's."""
    if not isinstance(outcome.value, Pickled):
        return outcome
    try:
        return Outcome(outcome.value.load())
    except OmniError as error:
        return Outcome(error=error)
