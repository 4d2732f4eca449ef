"""The kinds of waits that the audit tells apart, and which of them it covers where.

"Clean" means "none of the covered kinds", so every report carries the list.
"""

from __future__ import annotations

from enum import Enum


class Kind(str, Enum):
    """Why the host waited for the device."""

    __hash__ = str.__hash__  # that of Enum is Python, and every wait looks its site up

    SCALAR_READ = "scalar_read"
    """`.item()`, `int()`, `float()`, a tensor as an index or where a number must be."""
    TRUTH_VALUE = "truth_value"
    """`if tensor:`, `bool()`, `and`, `torch.equal`."""
    CPU = "cpu"
    """`.cpu()`."""
    TO_CPU = "to_cpu"
    """`.to("cpu")` and other blocking conversions to a host tensor."""
    TOLIST = "tolist"
    """`.tolist()`."""
    NUMPY = "numpy"
    """`.numpy()`, `numpy.asarray(tensor)`; a device needs `force=True` for it."""
    PRINT = "print"
    """`print`, `repr`, `format`: one wait for each element shown, counted as one call."""
    NONZERO = "nonzero"
    """`nonzero`, `argwhere`, `where` with one argument."""
    MASK_INDEX = "mask_index"
    """`tensor[mask]` and `tensor[mask] = ...` with a boolean mask."""
    UNIQUE = "unique"
    """`unique`, `unique_consecutive`."""
    MASKED_SELECT = "masked_select"
    """`masked_select`."""
    REPEAT_INTERLEAVE = "repeat_interleave"
    """`repeat_interleave` with a tensor of repeats and no `output_size`."""
    DATA_SHAPE = "data_shape"
    """Other operators whose result's shape depends on data (`bincount`)."""
    TENSOR_FROM_HOST = "tensor_from_host"
    """`torch.tensor(data, device=...)`, `as_tensor`, `asarray`, `new_tensor`."""
    H2D_PAGEABLE = "h2d_pageable"
    """A blocking copy to the device from ordinary (pageable) memory."""
    H2D_BLOCKING = "h2d_blocking"
    """A blocking copy to the device from pinned memory."""
    D2H_BLOCKING = "d2h_blocking"
    """`host.copy_(device)` without `non_blocking=True`."""
    D2H_PAGEABLE_ASYNC = "d2h_pageable_async"
    """A copy to pageable host memory with `non_blocking=True`, which waits all the same."""
    STREAM_SYNCHRONIZE = "stream_synchronize"
    EVENT_SYNCHRONIZE = "event_synchronize"
    DEVICE_SYNCHRONIZE = "device_synchronize"
    ALLOCATOR_FLUSH = "allocator_flush"
    """`empty_cache()`: gives memory back, which waits for what uses it."""
    OPERATOR_COPY = "operator_copy"
    """A copy between host and device that an operator makes inside; `detail="full"` only."""
    VENDOR = "vendor"
    """A wait that only the vendor's sync-debug mode saw; `detail="full"` only."""
    H2D_PAGEABLE_ASYNC = "h2d_pageable_async"
    """Not a wait: a `non_blocking` copy from pageable memory. It forbids capturing a graph."""


READS = {Kind.SCALAR_READ, Kind.TRUTH_VALUE}
SHAPES = {
    Kind.NONZERO,
    Kind.MASK_INDEX,
    Kind.UNIQUE,
    Kind.MASKED_SELECT,
    Kind.REPEAT_INTERLEAVE,
    Kind.DATA_SHAPE,
}
COPIES_OUT = {Kind.CPU, Kind.TO_CPU, Kind.TOLIST, Kind.NUMPY, Kind.D2H_BLOCKING}
UPLOADS = {Kind.TENSOR_FROM_HOST, Kind.H2D_PAGEABLE, Kind.H2D_BLOCKING}
EXPLICIT = {Kind.STREAM_SYNCHRONIZE, Kind.EVENT_SYNCHRONIZE, Kind.DEVICE_SYNCHRONIZE}

NOT_WAITS = {Kind.H2D_PAGEABLE_ASYNC}
"""Reported for `--capturable` only: the host does not wait for them."""

_FULL_ONLY = {Kind.OPERATOR_COPY, Kind.VENDOR}
_NEEDS_A_DEVICE = {
    Kind.H2D_BLOCKING,  # the CPU alone has no pinned memory
    Kind.STREAM_SYNCHRONIZE,  # nor a stream that can be waited for
    Kind.ALLOCATOR_FLUSH,  # nor a caching allocator; the platform's empty_cache() counts
    Kind.OPERATOR_COPY,
    Kind.VENDOR,
}


def covered_kinds(*, cpu_as_device: bool, full: bool, vendor: bool) -> list[Kind]:
    """Return the kinds that an audit of this mode would have found.

    `vendor` says that the platform's sync-debug mode is listened to.
    """
    missing = set(NOT_WAITS)
    if not full:
        missing |= _FULL_ONLY
    if not vendor:
        missing.add(Kind.VENDOR)
    if cpu_as_device:
        missing |= _NEEDS_A_DEVICE
    return [kind for kind in Kind if kind not in missing]
