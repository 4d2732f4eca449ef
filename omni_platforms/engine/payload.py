"""Users' objects on the wire: pickled by themselves, opaque to everything on the way.

A request that cannot be rebuilt then fails alone. Tensors cross as host memory,
and only their own bytes: a view does not drag its storage along.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from omni_platforms.errors import OmniError, UnsendableError

_PROTOCOL = 5


@dataclass(frozen=True)
class Blob:
    """Bytes that travel beside a message's fields and are not looked at."""

    data: bytes | bytearray | memoryview

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Offer the bytes to the pickler to be put beside."""
        return type(self), (pickle.PickleBuffer(self.data),)

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return memoryview(self.data).nbytes


@dataclass(frozen=True)
class Pickled(Blob):
    """One object, pickled."""

    @classmethod
    def of(cls, value: Any) -> Pickled:
        """Pickle `value`, with its tensors on the host. Blocks for tensors of a device.

        Raises `UnsendableError`.
        """
        file = io.BytesIO()
        try:
            _Pickler(file, _PROTOCOL).dump(value)
        except OmniError:
            raise
        except Exception as error:
            raise UnsendableError(
                f"{type(value).__qualname__} cannot be sent to another process: {error}. Send only "
                "objects that pickle accepts."
            ) from error
        return cls(file.getvalue())

    def load(self) -> Any:
        """Rebuild the object; only for what a trusted process sent. Raises `UnsendableError`."""
        try:
            return pickle.loads(self.data)
        except Exception as error:
            raise UnsendableError(
                f"an object cannot be rebuilt in this process: {error}. Make its class importable "
                "in the worker and in its parent under the same name (one that was defined in a "
                "script is not)."
            ) from error


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle tensors by their own bytes, on the host. Not called for builtin types."""
        torch = sys.modules.get("torch")
        if torch is None:
            return NotImplemented
        if isinstance(value, torch.Tensor) and not _is_compact(value):
            from omni_platforms.outputs.host_copy import blocking_copy

            return blocking_copy(value).__reduce_ex__(_PROTOCOL)
        if isinstance(value, torch.UntypedStorage | torch.TypedStorage):
            _check_on_host(value)
        return NotImplemented


def _is_compact(tensor: Any) -> bool:
    """Whether torch's own way sends no more than the tensor's bytes, and none of a device."""
    on_host: bool = tensor.device.type == "cpu"
    if not on_host or tensor.layout != sys.modules["torch"].strided:
        return on_host
    return bool(tensor.untyped_storage().nbytes() == tensor.nbytes)


def _check_on_host(storage: Any) -> None:
    device = getattr(storage, "_untyped_storage", storage).device
    if device.type != "cpu":
        raise UnsendableError(f"a storage on {device} cannot leave its process: send a tensor")
