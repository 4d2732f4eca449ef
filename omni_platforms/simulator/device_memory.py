"""The device's caching allocator, which makes uses of freed memory visible.

A freed block goes to the next request of its size and stream, the latest
first, in the order of the stream and without waiting, as in CUDA's allocator.
At each free a write of poison is queued on the block's stream: the earliest
thing that a next owner could legally do. Blocks are reused by exact size
(rounded up to 512 bytes) and never split.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from omni_platforms.simulator.addresses import AddressMap
from omni_platforms.simulator.blocks import Block, fill_with_poison
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.graphs.pool import GraphPool
from omni_platforms.simulator.races import FREE
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.statistics import MemoryStatistics
from omni_platforms.simulator.task import Queue, Span, Task

_ROUND = 512


class DeviceMemory:
    """The memory of all devices, each with `limit` bytes. Any thread may call any method."""

    def __init__(self, gate: Gate, scheduler: Scheduler, device_count: int, limit: int) -> None:
        self._gate = gate
        self._scheduler = scheduler
        self.limit = limit
        self.statistics = [MemoryStatistics() for _ in range(device_count)]
        self._blocks: AddressMap[Block] = AddressMap()
        self._free: dict[tuple[Queue, int], list[Block]] = defaultdict(list)
        self._pending: list[tuple[Block, list[Task]]] = []
        self._orphans: list[Block] = []

    def allocate(self, nbytes: int, queue: Queue) -> int:
        """Return the address of `nbytes` of undefined memory for use on `queue`.

        Waits for the device only when memory is short. Raises `torch.OutOfMemoryError`.
        """
        size = -(-nbytes // _ROUND) * _ROUND
        with self._gate:
            self._collect_pending()
            block = self._reuse(size, queue) or self._new_block(size, queue, nbytes)
            block.requested, block.users = nbytes, set()
            self._count_allocated(block, 1)
            self._count_active(block, 1)
            if self._scheduler.detector is not None and queue.capture is None:
                span = Span(block.pointer, block.pointer + nbytes)
                self._scheduler.detector.allocated(queue, span)
            return block.pointer

    def free(self, pointer: int) -> None:
        """Take a block back. It waits for the streams of `record_use`, on the device's side.

        In the middle of the scheduler's work it happens at the end of that work.
        """
        self._gate.when_released(lambda: self._free_now(pointer))

    def record_use(self, pointer: int, queue: Queue) -> None:
        """Note that `queue` uses the block, which must outlive what is in `queue` at its free."""
        with self._gate:
            block = self._blocks.find(pointer)
            if block is not None and queue is not block.queue:
                block.users.add(queue)

    def find(self, address: int) -> Block | None:
        """Return the block that `address` lies in, or `None`."""
        with self._gate:
            return self._blocks.find(address)

    def reserved(self, device: int) -> int:
        """Return how many bytes of the device are taken, cached ones included."""
        return self.statistics[device].current("reserved_bytes")

    def release_cached(self) -> None:
        """Give all cached blocks back. Waits for the device."""
        with self._gate:
            self._scheduler.host_wait_for_all(self._scheduler.queues(), "empty_cache")
            for statistics in self.statistics:
                statistics.waits_for_all_streams += 1
            self._collect_pending()
            for blocks in self._free.values():
                for block in blocks:
                    self._forget(block)
            self._free.clear()
            for block in self._orphans:
                self._forget(block)
            self._orphans.clear()

    def start_run(self) -> None:
        """Drop all cached blocks and counts at the start of a run; nothing may be queued.

        Blocks that are still in use now belong to their devices' default streams.
        """
        for block in (b for blocks in self._free.values() for b in blocks):
            self._forget(block)
        for block in self._orphans:
            self._forget(block)
        self._orphans.clear()
        for block, _ in self._pending:
            self._count_active(block, -1)
            self._forget(block)
        self._free.clear()
        self._pending.clear()
        for block in self._blocks:
            block.queue = self._scheduler.queue((block.device, 0))
            block.users, block.accesses = set(), []
        for statistics in self.statistics:
            statistics.reset_peaks()
            statistics.reset_sums()

    # Blocks -------------------------------------------------------------------

    def _reuse(self, size: int, queue: Queue) -> Block | None:
        capture = queue.capture
        cached = (self._free if capture is None else capture.pool.free)[queue, size]
        return cached.pop() if cached else None

    def _new_block(self, size: int, queue: Queue, nbytes: int) -> Block:
        device = queue.key[0]
        self._scheduler.captures.check_growth("new device memory", queue)
        if self.reserved(device) + size > self.limit and queue.capture is None:
            self.statistics[device].retries += 1
            self.release_cached()
        if self.reserved(device) + size > self.limit:
            self._refuse(device, nbytes)
        block = Block(size, device, queue)
        block.pool = None if queue.capture is None else queue.capture.pool
        self._blocks.add(block)
        self.statistics[device].change("reserved_bytes", size, size)
        self.statistics[device].change("segment", 1, size)
        self.statistics[device].segments_made += 1
        return block

    def _refuse(self, device: int, nbytes: int) -> None:
        self.statistics[device].out_of_memory += 1
        raise torch.OutOfMemoryError(
            f"simulated device {device} is out of memory: {nbytes} bytes were asked for, and "
            f"{self.reserved(device)} of its {self.limit} bytes are in use. Free tensors, or "
            "give simulate() a larger memory_limit."
        )

    def _forget(self, block: Block) -> None:
        self._blocks.remove(block)
        self.statistics[block.device].change("reserved_bytes", -block.size, block.size)
        self.statistics[block.device].change("segment", -1, block.size)
        self.statistics[block.device].segments_given_back += 1

    def _count_allocated(self, block: Block, sign: int) -> None:
        """Count what a tensor owns."""
        statistics = self.statistics[block.device]
        statistics.change("allocation", sign, block.size)
        statistics.change("allocated_bytes", sign * block.size, block.size)

    def _count_active(self, block: Block, sign: int) -> None:
        """Count what a tensor owns, or a stream of `record_use` may still use after its free."""
        statistics = self.statistics[block.device]
        statistics.change("active", sign, block.size)
        statistics.change("active_bytes", sign * block.size, block.size)
        statistics.change("requested_bytes", sign * block.requested, block.size)

    # Frees --------------------------------------------------------------------

    def _free_now(self, pointer: int) -> None:
        block = self._blocks.find(pointer)
        if block is None:
            raise AssertionError(f"address {pointer:#x} is freed twice")
        self._count_allocated(block, -1)
        for queue in (block.queue, *block.users):
            if queue.capture is not None and block.pool is not queue.capture.pool:
                # The free is no part of the graph, and its poison must not be.
                queue.capture.after_end.append(lambda: self._settle(block))
                return
        self._settle(block)

    def _settle(self, block: Block) -> None:
        """Release a freed block, now or when its streams are past it."""
        if block.pool is not None:
            self._give_to_pool(block, block.pool)
            return
        tails = [q.last for q in block.users if q.last is not None and not q.last.done]
        if tails:
            self._pending.append((block, tails))
        else:
            self._release(block)

    def _give_to_pool(self, block: Block, pool: GraphPool) -> None:
        """Keep the block for the graphs that use its address at each replay."""
        self._count_active(block, -1)
        if block.queue.capture is not None and not block.users:
            self._poison(block)  # a part of the graph, in the order of its stream
        pool.put_back(block)
        if not pool.graphs:
            self.adopt(pool)

    def adopt(self, pool: GraphPool) -> None:
        """Take the free blocks of a pool without graphs; `release_cached` gives them back."""
        self._orphans += pool.take_all()

    def _collect_pending(self) -> None:
        """Release the blocks whose recorded streams have got past their uses."""
        pending, self._pending = self._pending, []
        for block, tails in pending:
            if all(task.done for task in tails):
                self._release(block)
            else:
                self._pending.append((block, tails))

    def _release(self, block: Block) -> None:
        self._count_active(block, -1)
        # The allocator itself has waited for the recorded streams' uses.
        users = {queue.key for queue in block.users}
        block.accesses = [a for a in block.accesses if a.stream not in users]
        self._poison(block)
        self._free[block.queue, block.size].append(block)

    def _poison(self, block: Block) -> None:
        pointer, size = block.pointer, block.size
        self._scheduler.submit(
            block.queue,
            FREE,
            lambda: fill_with_poison(pointer, size),
            writes=(block.span,),
        )
