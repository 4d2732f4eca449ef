"""Outputs from another host: the worker's blocks, by way of Ray's object store.

The packet comes over the channel, with what is small in it. Its blocks are fetched: the agent
returns arrays over the worker's pages, Ray copies them into its object store (the one copy on
the worker's host) and brings them to the store of this host, and the tensors here are views of
the store's pages. Each block has a lease, as in an arena: when the last view is gone, the store may
have the memory back, and the budget has room for the next one.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

from omni_platforms.engine.ledger_records import Outcome
from omni_platforms.engine.pump import FarView
from omni_platforms.errors import ArenaFullError, CorruptPacketError, OmniError, WorkerDiedError
from omni_platforms.shm.lease import lease_array
from omni_platforms.shm.packet import BlockRecord, Contents, decode
from omni_platforms.shm.returns import ReturnEnd, ReturnPipe
from omni_platforms.shm.view import rebuild

_FINISH_S = 5.0


class StoreBudget:
    """How many bytes of outputs may be in the object store for this process at once.

    What has no room stays in its worker's arena, which holds that worker back as on one host.
    One thread, which waits for leases to end, from the first use on. Any thread may call it.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.changed = threading.Condition()
        self.waiting = 0
        """How many outputs wait for room."""
        self._numbers = itertools.count()
        self._sizes: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._closing, self._close = os.pipe()
        self._pipe = ReturnPipe()
        self._end: ReturnEnd | None = ReturnEnd(os.dup(self._pipe.writing_end))
        self._pipe.hand_over()

    @property
    def used(self) -> int:
        """Bytes that are fetched, or being fetched, and not let go."""
        with self.changed:
            return sum(self._sizes.values())

    def take(self, sizes: Sequence[int], is_over: Callable[[], bool]) -> list[int] | None:
        """Block until there is room, and return a lease's number for each size.

        Returns `None` once `is_over()`; call `wake` when that changes. Raises `ArenaFullError` for
        more than there ever is room for.
        """
        total = sum(sizes)
        if total > self.cap:
            error = ArenaFullError(
                f"an output of {total} bytes does not fit into the {self.cap} bytes that outputs "
                "of other hosts may take in Ray's object store: raise store_cap, and with it "
                "object_store_memory of this node"
            )
            error.never_fits = error.untouched = True
            raise error
        with self.changed:
            self._begin()
            self.waiting += 1
            self.changed.wait_for(lambda: is_over() or self._fits(total, len(sizes)))
            self.waiting -= 1
            if is_over():
                return None
            numbers = list(itertools.islice(self._numbers, len(sizes)))
            self._sizes.update(zip(numbers, sizes, strict=True))
            return numbers

    def _fits(self, nbytes: int, leases: int) -> bool:
        used = sum(self._sizes.values())
        return used + nbytes <= self.cap and len(self._sizes) + leases <= self._pipe.capacity

    def lease(self, array: Any, number: int) -> Any:
        """Return an object that exports an array's memory, and frees its room when it dies."""
        assert self._end is not None, "the budget is closed"
        return lease_array(array, number, self._end)

    def free(self, numbers: Sequence[int]) -> None:
        """Free room that was taken and not leased."""
        with self.changed:
            for number in numbers:
                self._sizes.pop(number, None)
            self.changed.notify_all()

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """End the thread. Leases may end later."""
        with self.changed:
            close, self._close = self._close, -1
            if close < 0:
                return
            os.close(close)
            self._end = None  # leases that are open keep it
            if self._thread is None:
                self._release()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="omni-store", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._pipe.fileno(), select.POLLIN)
        poller.register(self._closing, select.POLLIN)
        while self._closing not in [descriptor for descriptor, _ in poller.poll()]:
            self.free(self._pipe.read())
        self._release()

    def _release(self) -> None:
        self._pipe.close()
        os.close(self._closing)


class StoreView(FarView):
    """The consumer's side of a worker's outputs on another host.

    `take(blocks)` returns their arrays, and may raise anything; `give_back(blocks)` does not block.
    """

    def __init__(
        self,
        name: str,
        take: Callable[[Sequence[BlockRecord]], list[Any]],
        give_back: Callable[[Sequence[BlockRecord]], object],
        budget: StoreBudget,
    ) -> None:
        self._name = name
        self._take = take
        self._give_back = give_back
        self._budget = budget
        self._over = False
        self._queue: queue.SimpleQueue[tuple[Any, Callable[[Outcome], None]] | None]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"omni-fetch-{name}", daemon=True)
        self._thread.start()

    def fetch(self, packet: Any, deliver: Callable[[Outcome], None]) -> None:
        """Have an output delivered: at once where it is small, on the thread otherwise."""
        try:
            contents = _decoded(packet)
            if not contents.blocks:
                outcome = Outcome(self._rebuilt(contents, []))
            else:
                self._queue.put((contents, deliver))
                return
        except Exception as error:  # noqa: BLE001  also of users' classes: it fails this one output
            outcome = Outcome(error=error.with_traceback(None))
        deliver(outcome)

    def discard(self, packet: Any) -> None:
        """Give the blocks of a packet back. Raises `CorruptPacketError`."""
        blocks = decode(packet).blocks
        if blocks:
            self._give_back(blocks)

    def refresh(self) -> None:
        """There is nothing mapped here but what is in use."""

    def finish(self) -> None:
        """Deliver what is being fetched; what waits for room, or its turn, fails."""
        self._over = True
        self._budget.wake()
        self._queue.put(None)
        self._thread.join(_FINISH_S)

    def close(self) -> None:
        """End the thread; results stay valid."""
        self.finish()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            contents, deliver = task
            deliver(self._outcome(contents))
            del task, contents, deliver  # an idle thread keeps no output

    def _outcome(self, contents: Any) -> Outcome:
        try:
            return Outcome(self._rebuilt(contents, self._blocks(contents.blocks)))
        except Exception as error:  # noqa: BLE001  it fails this one output
            return Outcome(error=error.with_traceback(None))

    def _rebuilt(self, contents: Any, blocks: list[Any]) -> Any:
        nest = rebuild(contents, blocks)
        self.unpacked_count += 1
        self.unpacked_bytes += sum(leaf.nbytes for leaf in contents.leaves)
        return nest

    def _blocks(self, records: Sequence[BlockRecord]) -> list[Any]:
        """Return an object for each block that exports its bytes here."""
        numbers = self._budget.take([record.nbytes for record in records], lambda: self._over)
        if numbers is None:
            raise WorkerDiedError(f"{self._name} ended before its output was fetched")
        try:
            arrays = self._take(records)
        except BaseException as error:
            self._budget.free(numbers)
            cause = getattr(error, "cause", error)  # what Ray wraps is the agent's own
            if isinstance(cause, OmniError):
                raise cause from None
            raise WorkerDiedError(
                f"an output of {self._name} was lost on its way: {error}"
            ) from error
        return [self._budget.lease(a, n) for a, n in zip(arrays, numbers, strict=True)]


def _decoded(packet: Any) -> Contents:
    try:
        return decode(packet)
    except CorruptPacketError as error:
        error.untouched = True  # nothing was fetched: the worker may have its blocks back
        raise
