"""Runs a task's CPU kernels apart from the modes of the thread that demanded it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Switch off gradients, autocast and torch's modes inside a `with` block.

    A task runs on whichever thread waits for it first. Its result must not
    depend on what that thread has switched on.
    """
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch._C._DisableAutocast(),
        torch.no_grad(),
    ):
        yield
