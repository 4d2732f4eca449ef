"""Worker classes of which one rank behaves in another way than the others."""

from __future__ import annotations

from typing import Any

from omni_platforms import RequestRejectedError
from tests.engine.workers import Worker


class RankWorker(Worker):
    """A request may name the rank that fails."""

    def do_fail_on(self, ranks: dict[int, str]) -> Any:
        how = ranks.get(self.rank)
        if how == "rejected":
            raise RequestRejectedError(f"rank {self.rank} refuses")
        if how is not None:
            raise OSError(f"rank {self.rank}: {how}")
        return self.do_fill((self.rank + 1, 100_000))

    def sleep(self, level: int = 1) -> int:
        if self.rank == level:
            raise OSError(f"rank {self.rank} cannot sleep")
        return self.rank
