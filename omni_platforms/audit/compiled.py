"""Keeps out of the way of `torch.compile`.

Our own functions are not to be compiled: they would be traced again for each
caller. And with the CPU taken as a device every operator must be seen, which a
compiled graph does not allow, so compiled functions run uncompiled meanwhile.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import torch

from omni_platforms.audit.patches import Patches


def never_compile(code: CodeType) -> None:
    """Let torch's frame evaluation pass over `code`, and over what it calls."""
    evaluation: Any = torch._C._dynamo.eval_frame
    if hasattr(evaluation, "set_code_exec_strategy") and hasattr(evaluation, "_FrameAction"):
        skip = evaluation._FrameAction.SKIP
        evaluation.set_code_exec_strategy(code, evaluation._FrameExecStrategy(skip, skip))


class Uncompiled:
    """Makes compiled functions run uncompiled until `close`, also those compiled meanwhile."""

    def __init__(self) -> None:
        self._stance: Any = None
        self._patches = Patches()
        if "torch._dynamo" in sys.modules:
            self._force()
        else:  # which torch.compile imports, and that takes seconds
            compile_ = torch.compile

            def forced(*args: Any, **kwargs: Any) -> Any:
                self._force()
                return compile_(*args, **kwargs)

            self._patches.replace(torch, "compile", forced)

    def _force(self) -> None:
        if self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")
            self._stance.__enter__()

    def close(self) -> None:
        """Let compiled functions be compiled functions again."""
        self._patches.close()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
