"""Worker classes for tests on several nodes."""

from __future__ import annotations

import os
from typing import Any

from tests.engine.workers import Worker


class NodeWorker(Worker):
    """Says where it runs."""

    def where(self) -> dict[str, Any]:
        names = ("CUDA_VISIBLE_DEVICES", "OMNI_PLATFORM", "MARK")
        return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}

    def do_rank(self, argument: Any) -> int:
        return self.rank
