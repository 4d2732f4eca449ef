"""The nest without its bytes: pickled, with a number in place of each tensor and array.

Leaves are found wherever pickle goes, also inside objects that are no
containers: a device tensor in an attribute of some object must not cross the
border by torch's own rules, which would share device memory.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from omni_platforms.errors import OmniError, UnsupportedOutputError
from omni_platforms.outputs.host_copy import blocking_copy, copies_asynchronously
from omni_platforms.outputs.nest import is_array

_PROTOCOL = 5
_PLAIN_ARRAYS = "biufcmMSU"  # kinds of NumPy types whose bytes are all there is


class Apart(NamedTuple):
    """A nest that was taken apart."""

    structure: bytes
    """The nest, pickled, with a number in place of each leaf."""
    leaves: list[Any]
    """In the order of their numbers."""
    plain: bool
    """It is built-in containers and values all through: rebuilding it reads no leaf's bytes."""


def take_apart(nest: Any) -> Apart:
    """Return the pickled structure of a nest, and its leaves.

    A leaf object that occurs twice has one number. Tensors of other layouts
    (sparse, quantized, classes that dispatch themselves) are copied to the host
    here and travel as their class pickles them. The nest stays as it is. Raises
    `UnsupportedOutputError` for what cannot be pickled.
    """
    if type(nest) is torch.Tensor and copies_asynchronously(nest, nest.device) and not nest.is_meta:
        return Apart(_lone_leaf(), [nest], True)  # what most outputs are
    return _take_apart(nest)


def _take_apart(nest: Any) -> Apart:
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(nest)
    except OmniError:
        raise
    except RecursionError as error:
        raise UnsupportedOutputError(
            "the output is nested deeper than Python's recursion limit "
            f"({sys.getrecursionlimit()}): hand over a flatter structure"
        ) from error
    except Exception as error:
        raise UnsupportedOutputError(
            f"the output cannot be sent to another process: {error}. Hand over only tensors, "
            "arrays and objects that pickle accepts."
        ) from error
    return Apart(file.getvalue(), pickler.leaves, pickler.plain)


@functools.cache
def _lone_leaf() -> bytes:
    """Return the structure of an output that is a leaf itself."""
    return _take_apart(torch.empty(0, device="cpu")).structure


def put_together(structure: Any, values: Sequence[Any]) -> Any:
    """Return the nest with `values` as its leaves. Unpickles: only for what a trusted process sent.

    Raises `UnsupportedOutputError` when an object cannot be made in this process.
    """
    try:
        return _Unpickler(io.BytesIO(structure), values).load()
    except Exception as error:
        raise UnsupportedOutputError(
            f"the output cannot be rebuilt in this process: {error}. Make its classes importable "
            "here under the same names."
        ) from error


def leaf_number(number: int) -> Any:
    """Stand for leaf `number` in a pickled structure; `put_together` replaces it."""
    raise UnsupportedOutputError("a structure without its leaves was unpickled")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.leaves: list[Any] = []
        self.plain = True

    def reducer_override(self, value: Any) -> Any:
        """Take out leaves; everything else is pickled as usual. Not called for builtin types."""
        if isinstance(value, torch.Tensor):
            return self._reduce_tensor(value)
        if type(value).__name__ == "ndarray" and is_array(value) and _is_plain_array(value):
            return self._leaf(value)
        if value is leaf_number:
            return NotImplemented
        self.plain = False
        if isinstance(value, torch.UntypedStorage | torch.TypedStorage):
            return self._reduce_storage(value)
        return NotImplemented

    def _leaf(self, value: Any) -> Any:
        self.leaves.append(value)
        return leaf_number, (len(self.leaves) - 1,)

    def _reduce_tensor(self, value: torch.Tensor) -> Any:
        if copies_asynchronously(value, value.device) and not value.is_meta:
            return self._leaf(value)
        self.plain = False
        return blocking_copy(value).__reduce_ex__(_PROTOCOL)

    def _reduce_storage(self, value: Any) -> Any:
        device = getattr(value, "_untyped_storage", value).device  # without torch's warning
        if device.type == "cpu":
            return NotImplemented
        raise UnsupportedOutputError(
            f"a storage on {device} cannot leave its process: hand over a tensor of it"
        )


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, values: Sequence[Any]) -> None:
        super().__init__(file)
        self._values = values

    def find_class(self, module: str, name: str) -> Any:
        """Return what a global name stands for: for a leaf's number, the leaf."""
        if name == leaf_number.__name__ and module == __name__:
            return self._values.__getitem__
        return super().find_class(module, name)


def _is_plain_array(array: Any) -> bool:
    """Whether the bytes and the name of its type are all that an exact ndarray is."""
    import numpy

    dtype = array.dtype
    return dtype.kind in _PLAIN_ARRAYS and dtype.isnative and numpy.dtype(dtype.str) == dtype
