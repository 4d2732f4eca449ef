"""Small outputs that wait for company: one copy and one event for many of them.

In a loop of small kernels a copy and an event cost the host as much as a
blocking copy (15 against 16 to 21 us a step on an H200 host). Where nobody asks
for outputs before others have come, `submit` only keeps the tensors; a stack,
a copy and an event for 32 of them cost about 2 us each.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from omni_platforms.outputs.habit import COMPANY, Habit
from omni_platforms.outputs.host_copy import blocking_copy, own_tensors
from omni_platforms.outputs.pending import PendingOutput
from omni_platforms.outputs.small import SmallCopies, is_plain
from omni_platforms.platform.interface import OmniPlatform

_unbind_copy: Any = torch.unbind_copy  # torch's stubs say that it returns nothing


LATE_BYTES = 8 << 10
"""Leaves of up to this many bytes get memory of their own only when somebody asks for them."""


class Group:
    """Tensors of one shape and type, which travel as one."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self.leaves: list[torch.Tensor] = []
        self._staging: torch.Tensor | None = None
        self._block: torch.Tensor | None = None
        self._values: list[torch.Tensor] = []

    def start(self, small: SmallCopies) -> None:
        """Enqueue the copy on the current stream."""
        one = self.leaves[0][None] if len(self.leaves) == 1 else torch.stack(self.leaves)
        self._staging = small.start(one)
        if self._staging is None:
            raise RuntimeError("the platform has no pinned memory left")

    def arrive(self, small: SmallCopies) -> None:
        """Take what the device wrote out of the staging buffer, which serves again.

        The copy is done. Tensors of their own for 32 small leaves cost as much as three
        blocking copies, so these stay together until somebody asks for one.
        """
        staging = self._staging
        if staging is None:
            return
        if staging.nbytes > LATE_BYTES * len(staging):
            self._values = list(_unbind_copy(staging))
        else:
            self._block = staging.clone()
        small.shelve(staging)
        self._staging = None
        self.leaves = []

    def value(self, at: int) -> torch.Tensor:
        """Return the value of leaf `at`, with bytes of its own; it has arrived."""
        block = self._block
        return self._values[at] if block is None else block[at].clone()


Share = tuple[Group, int]
"""One leaf of an output: its group, and its place there."""


class Batch:
    """Outputs of one stream whose copies have not been started."""

    def __init__(self, key: int, stream: torch.Stream | None) -> None:
        self.key = key
        self.stream = stream
        self.outputs: list[PendingOutput] = []
        self.groups: dict[tuple[torch.Size, torch.dtype], Group] = {}
        self._last: Group | None = None

    def append(self, pending: PendingOutput, leaves: list[torch.Tensor]) -> None:
        """Take in an output with these leaves."""
        if len(leaves) == 1:  # without a list and tuples that the garbage collector would visit
            pending.group = group = self._group_of(leaves[0])
            pending.place = len(group.leaves)
            group.leaves.append(leaves[0])
        else:
            pending.values = [self._share_of(leaf) for leaf in leaves]
        pending.sources = leaves
        pending.batch = self
        self.outputs.append(pending)

    def _share_of(self, leaf: torch.Tensor) -> Share:
        group = self._group_of(leaf)
        group.leaves.append(leaf)
        return group, len(group.leaves) - 1

    def _group_of(self, leaf: torch.Tensor) -> Group:
        group, shape, dtype = self._last, leaf.shape, leaf.dtype
        if group is None or group.dtype is not dtype or group.shape != shape:
            group = self.groups.get((shape, dtype))
            if group is None:
                group = self.groups[shape, dtype] = Group(shape, dtype)
            self._last = group
        return group


class Batches:
    """The open batch of one executor. Any thread may call any method.

    Callers stand in the executor's capture gate.
    """

    def __init__(
        self, platform: OmniPlatform, device: torch.device, small: SmallCopies, habit: Habit
    ) -> None:
        self._platform = platform
        self._device = device
        self._small = small
        self._habit = habit
        self._streams: dict[int, torch.Stream | None] = {}
        self._open: Batch | None = None
        self._lock = threading.RLock()

    def add(self, pending: PendingOutput, leaves: list[Any]) -> bool:
        """Let `pending` wait for company on the calling thread's current stream.

        Returns false, with nothing changed, for what cannot travel in a group.
        """
        key = self._platform.current_stream_key(self._device)
        if key is None:
            return False
        for leaf in leaves:
            if not is_plain(leaf, self._device):
                return False
        with self._lock:
            batch = self._open
            if batch is None:
                batch = self._open = Batch(key, self._stream(key))
            elif batch.key != key:
                self._habit.disturb()
                return False
            batch.append(pending, leaves)
            if len(batch.outputs) >= COMPANY:
                self._start(batch)
        return True

    def close(self, batch: Batch) -> None:
        """Start the copies of `batch`, from any thread, unless they are started already."""
        with self._lock:
            if self._open is batch:
                with self._platform.stream_context(batch.stream):
                    self._start(batch)

    def withdraw(self, pending: PendingOutput) -> bool:
        """Take `pending` out of its batch to be copied here; false unless that is as good.

        It is when nothing else is in the batch and the current stream is the batch's.
        """
        with self._lock:
            batch = self._open
            if batch is None or batch is not pending.batch or len(batch.outputs) != 1:
                return False
            if self._platform.current_stream_key(self._device) != batch.key:
                return False
            self._open = pending.batch = pending.group = None
            pending.values = ()
            return True

    def current_stream(self) -> torch.Stream | None:
        """Return the calling thread's current stream, or `None` where none can be told apart."""
        key = self._platform.current_stream_key(self._device)
        return None if key is None else self._stream(key)

    def _stream(self, key: int) -> torch.Stream | None:
        if key not in self._streams:
            self._streams[key] = self._platform.current_stream(self._device)
        return self._streams[key]

    def _start(self, batch: Batch) -> None:
        """Start the copies on the current stream, which is the batch's."""
        self._open = None
        try:
            with own_tensors(), torch.no_grad():
                self._copy_together(batch)
        except RuntimeError:  # most likely no memory for the stack: each for itself then
            for pending in batch.outputs:
                _copy_alone(pending)
        for pending in batch.outputs:
            pending.batch = None

    def _copy_together(self, batch: Batch) -> None:
        try:
            for group in batch.groups.values():
                group.start(self._small)
        finally:
            done = self._platform.record_device_event(batch.stream)
            if done is None:
                self._platform.synchronize(self._device)
        for pending in batch.outputs:
            pending.done = done
            pending.shared = True


def _copy_alone(pending: PendingOutput) -> None:
    pending.group = None
    try:
        pending.values = [blocking_copy(leaf) for leaf in pending.sources]
    except Exception as error:  # noqa: BLE001  it fails this one output
        pending.values = ()
        pending.error = error
