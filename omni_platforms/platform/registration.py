"""Pinned memory that already existed: registered once, unregistered once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch


def as_byte_tensor(buffer: Any) -> torch.Tensor:
    """View a writable buffer or a contiguous CPU tensor as a flat uint8 tensor.

    Copies nothing and keeps `buffer` alive. Raises `TypeError` for memory that
    is not on the host, read-only or not contiguous, `ValueError` when empty.
    """
    if isinstance(buffer, torch.Tensor):
        if buffer.device.type != "cpu" or not buffer.is_contiguous():
            raise TypeError("only a contiguous CPU tensor can be registered with a device")
        flat = buffer.detach().reshape(-1).view(torch.uint8)
    else:
        view = memoryview(buffer)
        if view.readonly or not view.contiguous:
            raise TypeError("only writable, contiguous memory can be registered with a device")
        flat = torch.frombuffer(view.cast("B"), dtype=torch.uint8)
    if flat.numel() == 0:
        raise ValueError("empty memory cannot be registered with a device")
    return flat


class RegisteredHostMemory:
    """Host memory pinned in place; a context manager that unregisters at the end.

    `tensor` is the memory as flat uint8. Close it only when no enqueued copy
    uses the memory any more: the device may still be writing to it.
    """

    def __init__(self, tensor: torch.Tensor, unregister: Callable[[], None]) -> None:
        self._tensor: torch.Tensor | None = tensor
        self._unregister = unregister
        self._lock = threading.Lock()

    @property
    def tensor(self) -> torch.Tensor:
        """The registered bytes. Raises `ValueError` after `close()`."""
        if self._tensor is None:
            raise ValueError("this memory is no longer registered")
        return self._tensor

    @property
    def closed(self) -> bool:
        """Whether the memory was unregistered."""
        return self._tensor is None

    def close(self) -> None:
        """Unregister the memory; a second call does nothing. Any thread may call it.

        Raises `HostRegistrationError` when the device refuses.
        """
        with self._lock:
            if self._tensor is None:
                return
            self._unregister()
            self._tensor = None

    def __enter__(self) -> RegisteredHostMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
