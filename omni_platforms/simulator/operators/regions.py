"""What a queued task knows of a tensor: where its bytes are and how they are laid out."""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.blocks import fill_with_poison
from omni_platforms.simulator.device_memory import DeviceMemory
from omni_platforms.simulator.task import Span


class Region:
    """The bytes and the layout of one tensor, without the tensor.

    For a device tensor it does not keep the memory from being freed and reused:
    a task that runs too late sees what a device would see.
    """

    __slots__ = ("conjugate", "dtype", "negative", "offset", "size", "storage", "stride")

    def __init__(
        self, tensor: torch.Tensor, storage: torch.UntypedStorage | None, offset: int
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.dtype = tensor.dtype
        self.size = tuple(tensor.size())
        self.stride = tuple(tensor.stride())
        self.conjugate = tensor.is_conj()
        self.negative = tensor.is_neg()

    def tensor(self) -> torch.Tensor:
        """Return a CPU tensor over these very bytes."""
        if self.storage is None:  # no bytes at all
            made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="cpu")
        else:
            made = torch.empty(0, dtype=self.dtype, device="cpu")
            made.set_(self.storage, self.offset, self.size, self.stride)
        if self.conjugate:
            made = torch._conj(made)
        return torch._neg_view(made) if self.negative else made

    def poison_if_abandoned(self) -> None:
        """Make the bytes undefined if nobody but this region holds them any more."""
        if self.storage is not None and _owners(self.storage) == 1:
            fill_with_poison(self.storage.data_ptr(), self.storage.nbytes())


def _owners(storage: torch.UntypedStorage) -> int:
    """Count the tensors and storage objects that hold the memory of `storage`."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def device_region(memory: DeviceMemory, tensor: torch.Tensor) -> Region:
    """Return the region of a device tensor."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return Region(tensor, None, 0)
    block = memory.find(storage.data_ptr())
    if block is None or block.pointer != storage.data_ptr():
        raise SimulatorStateError(
            f"a tensor on {tensor.device} has memory that this simulator did not allocate. "
            "Make it with torch.empty(..., device=...) and copy into it."
        )
    return Region(tensor, block.storage, int(tensor.storage_offset()))


def host_region(tensor: torch.Tensor) -> Region:
    """Return the region of a CPU tensor, which keeps the tensor's memory alive."""
    return Region(tensor, tensor.untyped_storage(), int(tensor.storage_offset()))


def spans(tensor: torch.Tensor) -> tuple[Span, ...]:
    """Return the addresses from the first to the last byte of `tensor`; none when empty."""
    if tensor.numel() == 0:
        return ()
    itemsize = tensor.element_size()
    low = tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * itemsize
    last = sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride(), strict=True))
    return (Span(low, low + (int(last) + 1) * itemsize),)


def all_spans(tensors: list[torch.Tensor]) -> tuple[Span, ...]:
    """Return the spans of several tensors."""
    return tuple(span for tensor in tensors for span in spans(tensor))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements of `tensor` fill their span, each byte once, in any order."""
    expected = 1
    for step, n in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if n > 1 and step != expected:
            return False
        expected *= n
    return True


def tree_map(function: Any, value: Any) -> Any:
    """Return `value` with `function` applied to each leaf of its lists, tuples and dicts."""
    if isinstance(value, dict):
        return {key: tree_map(function, item) for key, item in value.items()}
    if isinstance(value, list):
        return [tree_map(function, item) for item in value]
    if isinstance(value, tuple):
        return tuple(tree_map(function, item) for item in value)
    return function(value)


def leaves(value: Any) -> list[Any]:
    """Return the leaves of lists, tuples and dicts, in order."""
    found: list[Any] = []
    tree_map(found.append, value)
    return found
