"""Getting the leaves of one output under way to their places: aside, or with blocking copies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.errors import CaptureError
from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm.packet import LeafRecord
from omni_platforms.shm.packing import Packing
from omni_platforms.shm.place import Place
from omni_platforms.shm.writing import Writer

logger = logging.getLogger(__name__)

Events = Sequence[torch.Event]


class Issuer:
    """Starts the copies of an arena's outputs, on the calling thread and a stream aside."""

    def __init__(self, platform: OmniPlatform, device: torch.device) -> None:
        self._platform = platform
        self._device = device
        self._captures = Capability.GRAPH_CAPTURE in platform.capabilities
        self._side = self._made_side_stream()

    def _made_side_stream(self) -> torch.Stream | None:
        """Return a stream for the copies, or `None`: then they are blocking ones."""
        try:
            side = self._platform.create_side_stream(self._device)
        except Exception as error:  # noqa: BLE001  whatever it is, there is none
            logger.warning("outputs are copied with blocking calls: %s", str(error))
            return None
        if side is not None and side.device != self._device:
            # Copies on it would not wait for the device that computes.
            made, wanted = side.device, self._device
            logger.warning("copying with blocking calls: a stream on %s is on %s", wanted, made)
            return None
        return side

    @property
    def side_stream(self) -> torch.Stream | None:
        """The stream of the copies; `None` where they are blocking."""
        return self._side

    def check_no_capture(self) -> None:
        """Raise `CaptureError` while the calling stream captures a graph."""
        if self._captures and self._platform.is_capturing(self._device):
            raise CaptureError(
                "the calling stream is capturing a graph, and a hand-over to another process "
                "cannot be part of one: pack the graph's static output after the replay"
            )

    def issue(
        self,
        packing: Packing,
        leaves: Sequence[Any],
        records: Sequence[LeafRecord],
        places: Sequence[Place],
        after: Events | None,
    ) -> None:
        """Fill `packing` with copies that are under way, or done.

        An exception leaves `packing` with the event that covers what was
        enqueued before it.
        """
        with own_tensors():
            side = self._side_after(after) if self._is_on_device(leaves) else None
            writer = Writer(self._platform, self._device, asynchronous=side is not None)
            packing.writer = writer
            if side is None:
                _write_all(writer, leaves, records, places)
                return
            with self._platform.stream_context(side):
                try:
                    _write_all(writer, leaves, records, places)
                finally:
                    # Also after an error: what was enqueued may still read and write.
                    packing.done = self._platform.record_device_event(side)
                    if packing.done is None:
                        self._platform.synchronize(self._device)

    def _is_on_device(self, leaves: Sequence[Any]) -> bool:
        host = "cpu"
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type != host for leaf in leaves)

    def _side_after(self, after: Events | None) -> torch.Stream | None:
        """Return the side stream, behind the work that makes the output, or `None`: block."""
        platform, side = self._platform, self._side
        if after is None and side is not None:
            here = platform.is_current_device(self._device)
            stream = None if here else platform.current_stream(self._device)
            event = platform.record_device_event(stream)
            after = None if event is None else (event,)
            side = None if event is None else side
        for event in after or ():
            if side is None:
                platform.synchronize_event(event)
            else:
                platform.stream_wait_event(side, event)
        return side


def _write_all(
    writer: Writer, leaves: Sequence[Any], records: Sequence[LeafRecord], places: Sequence[Place]
) -> None:
    for leaf, record, place in zip(leaves, records, places, strict=True):
        if record.nbytes:
            writer.write(leaf, record, place)
