"""Getting an output off the device: on a stream, or with blocking copies."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from omni_platforms.outputs.batch import Batches
from omni_platforms.outputs.direct import Direct
from omni_platforms.outputs.habit import Habit
from omni_platforms.outputs.host_copy import (
    blocking_copy,
    copies_asynchronously,
    nbytes_of,
    snapshot,
    start_copy,
)
from omni_platforms.outputs.nest import Rebuild, flatten
from omni_platforms.outputs.pending import PendingOutput
from omni_platforms.outputs.small import SMALL_BYTES, SmallCopies
from omni_platforms.outputs.stats import Counters
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

logger = logging.getLogger(__name__)

OnDevice = Callable[[Any], Any]
Streams = Sequence[torch.Stream]
Start = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass
class Request:
    """One call of `submit`, taken apart."""

    output: Any
    leaves: list[Any]
    rebuild: Rebuild
    on_device: OnDevice | None = None
    borrow: bool = False
    streams: Streams | None = None

    def run_on_device(self) -> None:
        """Replace the output by what `on_device` makes of it, on the current stream."""
        assert self.on_device is not None
        with torch.no_grad():
            self.output = self.on_device(self.output)
        self.leaves, self.rebuild = flatten(self.output)


class Issuer:
    """Starts the copies of one executor's outputs, on the calling thread."""

    def __init__(self, platform: OmniPlatform, device: torch.device, counters: Counters) -> None:
        self._platform = platform
        self._device = device
        self._counters = counters
        self.small = SmallCopies(platform, device)
        self.habit = Habit()
        self.batches = Batches(platform, device, self.small, self.habit)
        self.direct = Direct(device, self.batches)
        self.pinned = False
        self.reason = ""
        self._side = self._find_side_stream()
        self.asynchronous = self.direct.possible = self._side is not None

    @property
    def side_stream(self) -> torch.Stream | None:
        """The stream of the copies of large outputs; `None` where they are blocking."""
        return self._side

    def issue_small(self, pending: PendingOutput, leaves: list[Any], here: bool) -> None:
        """Start the copies on the caller's own stream: no other stream has to wait.

        What the caller enqueues later, such as overwriting a borrowed buffer,
        comes after them. `here` says that the current device is the executor's.
        An exception becomes the output's error.
        """
        if torch.is_inference_mode_enabled():
            # Buffers and results made in inference mode could not be written to outside it.
            with torch.inference_mode(False), torch.no_grad():
                return self.issue_small(pending, leaves, here)
        pending.sources = leaves
        platform = self._platform
        try:
            try:
                self._copy_leaves(pending, leaves, self.small.start)
            finally:
                # Also after an error: what was enqueued may still read and write.
                stream = None if here else platform.current_stream(self._device)
                pending.done = platform.record_device_event(stream)
                if pending.done is None:
                    platform.synchronize(self._device)
        except Exception as error:  # noqa: BLE001  it fails this one output
            pending.error = error.with_traceback(_below_this_file(error))

    def issue(self, pending: PendingOutput, request: Request, blocking: bool) -> None:
        """Fill `pending` with copies that are under way, or, when `blocking`, done.

        An exception, of `on_device` or of a copy, becomes the output's error.
        """
        if torch.is_inference_mode_enabled():
            # Results made in inference mode could not be written to outside it.
            with torch.inference_mode(False), torch.no_grad():
                return self.issue(pending, request, blocking)
        pending.sources = (request.output, request.leaves)
        try:
            if blocking or self._side is None:
                self._copy_blocking(pending, request)
            else:
                self._copy_aside(pending, request)
        except Exception as error:  # noqa: BLE001  it fails this one output
            pending.error = error.with_traceback(_below_this_file(error))

    # The side stream ----------------------------------------------------------

    def _find_side_stream(self) -> torch.Stream | None:
        """Make the side stream, or say in `reason` why outputs take the blocking path."""
        side = self._made_side_stream()
        if side is None:
            return None
        try:
            probe = self._platform.pinned_empty((1,), torch.uint8)
        except Exception as error:  # noqa: BLE001  whatever it is, pinning does not work
            self._refuse(f"pinned memory ({error})", Capability.PINNED_MEMORY)
            return None
        if probe is None or not probe.is_pinned():
            self._refuse("pinned memory", Capability.PINNED_MEMORY)
            return None
        self.pinned = True
        return side

    def _made_side_stream(self) -> torch.Stream | None:
        wanted = Capability.SIDE_STREAMS
        try:
            side = self._platform.create_side_stream(self._device)
        except Exception as error:  # noqa: BLE001  whatever it is, there is none
            self._refuse(f"side streams ({error})", wanted)
            return None
        if side is None:
            self._refuse("side streams", wanted)
        elif side.device != self._device:
            # Copies on it would not wait for the device that computes.
            self._refuse(f"side streams on {self._device} (it made one on {side.device})", wanted)
            return None
        return side

    def _refuse(self, what: str, capability: Capability) -> None:
        """Take the blocking path; loudly when the platform had promised otherwise."""
        self.reason = f"platform {self._platform.name!r} gives no {what}"
        if capability in self._platform.capabilities:
            warnings.warn(
                f"{self.reason}, although it declares {capability.value!r}: every output is "
                "copied with a blocking call. Run `omni-platforms doctor`.",
                RuntimeWarning,
                stacklevel=6,
            )

    def _copy_aside(self, pending: PendingOutput, request: Request) -> None:
        """Start the copies on the side stream, behind the caller's work."""
        gate = self._record_gates(request.streams)
        if gate is None:
            self._copy_blocking(pending, request)
            return
        pending.gate = gate
        if request.borrow:
            self._borrow(request)
            pending.sources = (request.output, request.leaves)
        self._copy_on_side(pending, request)

    def _record_gates(self, streams: Streams | None) -> torch.Event | None:
        """Make the side stream wait for the work enqueued so far; return the last event.

        `None` means that the platform gives no event: take the blocking path.
        """
        side, platform = self._side, self._platform
        if side is None:
            return None
        gate = None
        for stream in streams or (platform.current_stream(self._device),):
            gate = platform.record_device_event(stream)
            if gate is None:
                return None
            platform.stream_wait_event(side, gate)
        return gate

    def _borrow(self, request: Request) -> None:
        """Copy device leaves on the device, so that the caller may overwrite them at once."""
        streams = request.streams
        if not streams:
            request.leaves = self._snapshots(request.leaves)
            self._record_gates(None)  # the side stream waits for the snapshots too
        else:
            request.leaves = self._borrow_from(streams, request.leaves)
        request.output = request.rebuild(request.leaves)
        request.leaves, request.rebuild = flatten(request.output)

    def _borrow_from(self, streams: Streams, leaves: list[Any]) -> list[Any]:
        """Take the snapshots on the side stream, and make the caller's streams wait for them."""
        side, platform = self._side, self._platform
        with platform.stream_context(side):
            copies = self._snapshots(leaves)
            taken = platform.record_device_event(side)
        for stream in (*streams, platform.current_stream(self._device)):
            if stream is not None and taken is not None:
                platform.stream_wait_event(stream, taken)
        return copies

    def _snapshots(self, leaves: list[Any]) -> list[Any]:
        return [
            snapshot(leaf) if copies_asynchronously(leaf, self._device) else leaf for leaf in leaves
        ]

    def _copy_on_side(self, pending: PendingOutput, request: Request) -> None:
        side, platform, device = self._side, self._platform, self._device
        with platform.stream_context(side):
            try:
                self._run_on_device(pending, request)
                pending.sources = (*pending.sources, request.output, request.leaves)
                pending.rebuild = request.rebuild
                self._copy_leaves(
                    pending, request.leaves, lambda leaf: start_copy(leaf, device, platform)
                )
            finally:
                # Also after an error: what was enqueued may still read and write.
                pending.done = platform.record_device_event(side)
                if pending.done is None:
                    platform.synchronize(device)
        pending.lingers = bool(pending.staged) and not pending.needs_thread

    def _run_on_device(self, pending: PendingOutput, request: Request) -> None:
        if request.on_device is not None:
            request.run_on_device()
            pending.nbytes = sum(map(nbytes_of, request.leaves))

    def _copy_leaves(self, pending: PendingOutput, leaves: list[Any], start: Start) -> None:
        """Copy every leaf: with `start` where the device can do it behind the host's back."""
        pending.values = values = []
        staged = []
        for at, leaf in enumerate(leaves):
            try:
                copy = start(leaf)
            except RuntimeError as error:
                # Most likely no more memory can be pinned; the blocking copy either
                # works or raises the true cause.
                logger.warning("asynchronous copy refused, copying with a blocking call: %s", error)
                copy = None
            if copy is None:
                copy = self._copy_now(leaf)
            else:
                staged.append(at)
            values.append(copy)
        if pending.nbytes <= SMALL_BYTES:
            pending.staged = staged

    def _copy_now(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
            self._counters.add("blocking_leaves")
        return blocking_copy(leaf)

    # The blocking path --------------------------------------------------------

    def _copy_blocking(self, pending: PendingOutput, request: Request) -> None:
        """Copy now, on the calling thread and its current stream."""
        if request.streams:
            self._platform.synchronize(self._device)
        self._run_on_device(pending, request)
        pending.rebuild = request.rebuild
        pending.values = [blocking_copy(leaf) for leaf in request.leaves]
        pending.copied = time.perf_counter()
        pending.sources = None


def _below_this_file(error: BaseException) -> Any:
    """Return the traceback from the user's frame on: our frames hold device tensors."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        if traceback.tb_next is None:
            break
        traceback = traceback.tb_next
    return traceback
