"""Makes the simulated vendor tell of waits as a real one does: when the call from Python returns.

torch keeps what C++ code warns of until then (`PyWarningHandler`); the simulator warns at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from omni_platforms.audit.patches import Patches
from omni_platforms.simulator.sync_debug import SyncDebug

_READS = "item __bool__ __int__ __float__ __index__"
_METHODS = f"{_READS} __getitem__ nonzero cpu to tolist numpy copy_ unique unique_consecutive"
_FUNCTIONS = "equal where masked_select repeat_interleave bincount tensor unique unique_consecutive"


Function = Callable[..., Any]


def like_torchs(function: Any) -> Function:
    """Return `function`, with a frame that is torch's and not the user's."""
    function.__code__ = function.__code__.replace(co_filename=torch._tensor.__file__)
    return function  # type: ignore[no-any-return]


@contextmanager
def telling_late() -> Iterator[Callable[[Function], Function]]:
    """Let each of torch's calls tell of its waits when it returns, in front of audits.

    Yields what makes one more function such a call.
    """
    told: list[str] = []
    patches = Patches()

    def check(self: SyncDebug, what: str) -> None:
        if self.mode == 1:
            told.append(what)

    def late(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            outer = told[:]
            told.clear()
            try:
                return original(*args, **kwargs)
            finally:
                mine, told[:] = told[:], outer
                for what in mine:
                    warnings.warn(f"called a synchronizing operation ({what})", stacklevel=2)

        return like_torchs(call)

    patches.replace(SyncDebug, "check", check)
    for owner, names in ((torch.Tensor, _METHODS), (torch, _FUNCTIONS)):
        for name in names.split():
            patches.replace(owner, name, late(getattr(owner, name)))
    try:
        yield late
    finally:
        patches.close()
    assert told == [], told
