"""`ArenaView`: the consumer's side of an arena. Its results are views of the worker's pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.errors import CorruptPacketError
from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.shm.packet import ARRAY, INLINE, Contents, LeafRecord, Packet
from omni_platforms.shm.reader import BlockReader
from omni_platforms.shm.structure import put_together


class ArenaView(BlockReader):
    """The consumer's side of one arena: unpacks its packets without copying large leaves.

    Make it with `connect`. Any thread may call the methods. It touches no
    device. Results are ordinary tensors and arrays, writable and
    private; each large one leases its block until it and everything that views
    its memory are gone. Pickling, saving or copying one costs its own bytes.

    `Tensor.share_memory_()`, and sending a result through `torch.multiprocessing`,
    move a tensor's bytes elsewhere: arrays that were derived from it before then
    view memory that is not theirs any more, as with every tensor of torch.
    """

    unpacked_count = 0
    """How many nests were unpacked."""
    unpacked_bytes = 0
    """Of their tensors and arrays."""

    def unpack(self, packet: Packet | bytes | bytearray | memoryview) -> Any:
        """Return the nest of a packet, which can be unpacked once. Does not block.

        Raises `CorruptPacketError` for a packet that is damaged, not of this arena or
        was unpacked before (as far as the last 4096 leases tell), and
        `UnsupportedOutputError` for objects that cannot be made here. No lease is kept
        then. An error whose `untouched` is true came before any lease began: the worker has
        the blocks still, and may take them back (`Arena.discard`, `Arena.discard_all_of`).
        """
        contents = self._read(packet)
        nest = rebuild(contents, self._lease_all(contents.blocks))
        self.unpacked_count += 1
        self.unpacked_bytes += sum(leaf.nbytes for leaf in contents.leaves)
        return nest


def rebuild(contents: Contents, blocks: list[Any]) -> Any:
    """Return the nest of a packet over objects that export its blocks; the list is emptied.

    Raises `CorruptPacketError` and `UnsupportedOutputError`, and keeps no block then.
    """
    values: list[Any] = []
    try:
        with own_tensors():
            values += [_value(leaf, contents, blocks) for leaf in contents.leaves]
            return put_together(contents.structure, values)
    finally:
        # A traceback would otherwise keep them, and so the blocks.
        blocks.clear()
        values.clear()


def _value(leaf: LeafRecord, contents: Contents, leases: Sequence[Any]) -> Any:
    """Return one leaf, over its own range of its block, or a private copy of inline bytes."""
    end = leaf.offset + leaf.nbytes
    if leaf.block == INLINE:
        memory = memoryview(bytearray(contents.inline[leaf.offset : end]))
    else:
        memory = memoryview(leases[leaf.block])[leaf.offset : end]
    return _array(leaf, memory) if leaf.kind == ARRAY else _tensor(leaf, memory)


def _tensor(leaf: LeafRecord, memory: memoryview) -> torch.Tensor:
    dtype = getattr(torch, leaf.dtype, None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != leaf.itemsize:
        raise CorruptPacketError(f"this torch has no dtype {leaf.dtype} of {leaf.itemsize} bytes")
    if not leaf.nbytes:
        return torch.empty_strided(leaf.shape, leaf.strides, dtype=dtype, device="cpu")
    return torch.frombuffer(memory, dtype=dtype).as_strided(leaf.shape, leaf.strides)


def _array(leaf: LeafRecord, memory: memoryview) -> Any:
    import numpy

    try:
        dtype = numpy.dtype(leaf.dtype)
    except TypeError as error:
        raise CorruptPacketError(f"this NumPy has no dtype {leaf.dtype}") from error
    if dtype.hasobject or dtype.itemsize != leaf.itemsize:
        raise CorruptPacketError(f"{leaf.dtype} has no {leaf.itemsize} plain bytes")
    strides = tuple(stride * leaf.itemsize for stride in leaf.strides)
    return numpy.ndarray(leaf.shape, dtype, memory, strides=strides)
