"""Which worker gets which job, and when: a window of jobs is at each worker ahead of its time.

Pure: it does no I/O and takes no lock. With the next job waiting at the worker no
round trip stands between two forwards. What does not fit into the windows waits
here, in order, so that a worker is chosen as late as possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from omni_platforms.engine.ledger_records import Origin, Outcome
from omni_platforms.engine.messages import Execute, ExecuteBatch
from omni_platforms.engine.ranks import RankReplies


@dataclass(eq=False)
class Work:
    """One job, as the workers get it."""

    id: str
    message: Execute | ExecuteBatch
    replies: RankReplies = field(default_factory=lambda: RankReplies(()))
    """The COMPUTE_DONEs of the ranks that it was sent to."""
    drops: list[str] = field(default_factory=list)
    """Outputs that were dropped, and of which the worker can be told only later."""
    held: list[tuple[str, Outcome]] = field(default_factory=list)
    """Outputs that came before every rank was done."""
    origin: Origin | None = None
    """The rank whose outputs are delivered, once it is done."""
    tries: int = 0
    """How often it was sent before, to workers that were lost."""


Sends = list[tuple[int, Work]]


class Dispatcher:
    """The queue and the windows. One thread at a time may call it.

    Parameters:
        workers: how many there are.
        window: how many jobs without COMPUTE_DONE each may have.
        lockstep: every worker gets every job, in the same order; otherwise each job
            goes to the worker that has the fewest.
    """

    def __init__(self, workers: int, window: int, lockstep: bool) -> None:
        self._window = window
        self._lockstep = lockstep
        self._queue: deque[Work] = deque()
        self._at_worker: dict[int, dict[str, Work]] = {rank: {} for rank in range(workers)}
        self._leaving: set[int] = set()

    def submit(self, work: Work) -> Sends:
        """Take a job; return what is to be sent now, in order."""
        self._queue.append(work)
        return self._fill()

    def work_of(self, rank: int, job_id: str) -> Work | None:
        """Return a job that a worker has not finished."""
        return self._at_worker.get(rank, {}).get(job_id)

    def finished(self, rank: int, job_id: str) -> Sends:
        """Note a worker's COMPUTE_DONE; return what is to be sent now, in order."""
        self._at_worker.get(rank, {}).pop(job_id, None)
        return self._fill()

    def waiting(self, job_id: str) -> Work | None:
        """Return a job that was not sent yet."""
        return next((work for work in self._queue if work.id == job_id), None)

    def withdraw(self, work: Work) -> None:
        """Take back a job that was not sent yet."""
        self._queue.remove(work)

    def clear(self) -> None:
        """Forget everything."""
        self._queue.clear()
        for jobs in self._at_worker.values():
            jobs.clear()

    # Workers that come and go ---------------------------------------------------

    def join(self, rank: int) -> Sends:
        """Take a further worker; return what is to be sent now, in order."""
        self._at_worker[rank] = {}
        return self._fill()

    def retire(self, rank: int) -> None:
        """Give a worker no further jobs."""
        self._leaving.add(rank)

    def reinstate(self, rank: int) -> Sends:
        """Give a retired worker jobs again; return what is to be sent now, in order."""
        self._leaving.discard(rank)
        return self._fill()

    def leave(self, rank: int) -> list[Work]:
        """Remove a worker; return the jobs that it had not finished, oldest first."""
        self._leaving.discard(rank)
        return list(self._at_worker.pop(rank, {}).values())

    def again(self, works: Sequence[Work]) -> Sends:
        """Put jobs in front of all that wait; return what is to be sent now, in order."""
        self._queue.extendleft(reversed(works))
        return self._fill()

    def serving(self) -> list[int]:
        """Return the ranks that get jobs."""
        return [rank for rank in self._at_worker if rank not in self._leaving]

    def least_busy(self) -> int:
        """Return the serving worker with the fewest jobs; of several the newest."""
        return min(reversed(self.serving()), key=lambda rank: len(self._at_worker[rank]))

    def is_idle(self, rank: int) -> bool:
        """Whether a worker has no job without COMPUTE_DONE."""
        return not self._at_worker.get(rank)

    def load(self) -> tuple[int, list[int]]:
        """Return how many jobs wait here, and how many are at each worker."""
        return len(self._queue), [len(jobs) for jobs in self._at_worker.values()]

    def loads(self) -> dict[int, int]:
        """Return how many jobs are at each worker, by rank."""
        return {rank: len(jobs) for rank, jobs in self._at_worker.items()}

    def room(self) -> int:
        """Return how many jobs the windows hold."""
        return self._window * (1 if self._lockstep else len(self.serving()))

    def _fill(self) -> Sends:
        sends: Sends = []
        while self._queue and (ranks := self._ranks_with_room()):
            work = self._queue.popleft()
            work.replies = RankReplies(ranks)
            for rank in ranks:
                self._at_worker[rank][work.id] = work
                sends.append((rank, work))
        return sends

    def _ranks_with_room(self) -> list[int]:
        loads = {rank: len(self._at_worker[rank]) for rank in self.serving()}
        if self._lockstep:
            return list(loads) if max(loads.values()) < self._window else []
        least = min(loads, key=loads.__getitem__, default=None)
        return [least] if least is not None and loads[least] < self._window else []
