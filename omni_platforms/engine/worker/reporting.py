"""What a worker tells its parent, from any of its threads."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NoReturn

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import AsyncOutput, Ended, Kind, preview_id
from omni_platforms.engine.worker.main import FAILED
from omni_platforms.engine.worker.work import WorkTable
from omni_platforms.errors import ChannelClosedError


class Reporter:
    """Sends what became of each output, and keeps the table in step with it."""

    def __init__(self, channel: Channel, table: WorkTable) -> None:
        self._channel = channel
        self._table = table

    def computed(self, name: str, **more: Any) -> None:
        """Say that the forward has ended: the next may start."""
        self._send(Kind.COMPUTE_DONE, name, stamps=self._table.stamps(name), **more)

    def request_failed(self, name: str, error: BaseException) -> None:
        """Say that the forward failed; nothing else comes of the request."""
        self.computed(name, error=ErrorRecord.of(error))
        self.finished(name)

    def output_failed(self, name: str, error: BaseException) -> None:
        """Say that an output did not get across."""
        self._output(name, error=ErrorRecord.of(error))

    def coming(self, name: str, packet: Any) -> None:
        """Send the packet of an output that the device is still writing."""
        self._send(Kind.OUTPUT_COMING, name, packet=packet)

    def output(self, name: str, packet: Any) -> None:
        """Say that an output is there; its packet is `None` where it was sent before."""
        self._output(name, packet=packet)

    def _output(self, name: str, **what: Any) -> None:
        self._send(Kind.OUTPUT_READY, name, stamps=self._table.stamps(name), **what)
        self.finished(name)

    def preview(self, name: str, step: int, **what: Any) -> None:
        """Send a preview, or why there is none."""
        self._send(Kind.PREVIEW, preview_id(name, step), step=step, **what)

    def finished(self, name: str) -> None:
        """Forget an output; who dropped it meanwhile is told that it is out of all memory."""
        if self._table.finish(name):
            self.dropped(name)

    def dropped(self, name: str) -> None:
        """Acknowledge a drop."""
        self._send(Kind.DROPPED, name)

    def result(self, name: str, **what: Any) -> None:
        """Answer a call."""
        self._send(Kind.RPC_RESULT, name, **what)

    def _send(self, kind: Kind, name: str, **what: Any) -> None:
        self._channel.send(AsyncOutput(kind, name, **what))

    def end_now(self, error: BaseException) -> NoReturn:
        """Say the last word and end the process at once, whatever its threads do.

        A device that is lost can hang or crash an orderly exit.
        """
        traceback.print_exception(error)
        try:
            self._channel.send(Ended(ErrorRecord.of(error)))
        except ChannelClosedError:
            print("the parent is gone, too", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILED)
