"""The parts of one simulated accelerator, put together."""

from __future__ import annotations

from collections import Counter

import torch

from omni_platforms.simulator.device_memory import DeviceMemory
from omni_platforms.simulator.dtypes import COMPUTED
from omni_platforms.simulator.events import EventTable
from omni_platforms.simulator.fault_state import FaultState
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.graphs.table import GraphTable
from omni_platforms.simulator.pinned_memory import PinnedMemory
from omni_platforms.simulator.policy import Policy
from omni_platforms.simulator.races import Access, Race, RaceDetector
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Queue
from omni_platforms.simulator.threads import CurrentDevices


class Runtime:
    """Streams, events, memory and threads of one simulated accelerator."""

    def __init__(
        self,
        name: str,
        device_count: int,
        memory_limit: int,
        dtypes: frozenset[torch.dtype] = COMPUTED,
    ) -> None:
        self.name = name
        self.dtypes = dtypes
        self.device_count = device_count
        self.gate = Gate()
        self.threads = CurrentDevices(device_count)
        self.faults = FaultState()
        self.scheduler = Scheduler(self.gate, self.faults.hang)
        self.memory = DeviceMemory(self.gate, self.scheduler, device_count, memory_limit)
        self.pinned = PinnedMemory(self.gate, self._check_growth)
        self.graphs = GraphTable(self.gate, self.scheduler, self.memory)
        self.events = EventTable(self.gate, self.scheduler)
        self.hidden_waits: Counter[str] = Counter()
        """By operator: host waits that no real device would need."""

    def start_run(self, policy: Policy, *, detect_races: bool) -> None:
        """Finish what is queued, forget what failed, and begin anew under `policy`."""
        with self.gate:
            self.graphs.start_run()
            self.scheduler.finish()
            detector = RaceDetector(self._accesses_at) if detect_races else None
            self.scheduler.start(policy, detector)
            self.memory.start_run()
            self.pinned.start_run()
            self.events.start_run()
            self.threads.start_run()
            self.hidden_waits.clear()

    def current_queue(self, device: int = -1) -> Queue:
        """Return the calling thread's current stream on `device` (negative: the current one)."""
        return self.scheduler.queue(self.threads.stream(device))

    def _check_growth(self, what: str) -> None:
        self.scheduler.captures.check_growth(what, self.current_queue())

    def copy_engine(self, queue: Queue) -> Queue:
        """Return the hidden stream on which copies of `queue` run outside its events."""
        return self.scheduler.hidden_queue(queue.key[0], f"copy engine of {queue}")

    def wait_for_everything(self) -> None:
        """Block the host until all devices are done. Raises what failed."""
        self.scheduler.host_wait_for_all(self.scheduler.queues(), "the end of the run")

    def races(self) -> set[Race]:
        """Return the races that were found in this run; none when it does not look for them."""
        detector = self.scheduler.detector
        return set() if detector is None else set(detector.races)

    def describe(self) -> str:
        """Return the timeline of this run, with the races that were found in it."""
        races = [f"race: {race}" for race in sorted(self.races())]
        return "\n".join([self.scheduler.timeline.text(self.racing_tasks()), *races]).strip("\n")

    def racing_tasks(self) -> set[int]:
        """Return the numbers of the tasks that race in this run."""
        detector = self.scheduler.detector
        return set() if detector is None else {n for pair in detector.races.values() for n in pair}

    def _accesses_at(self, address: int) -> list[Access] | None:
        block = self.memory.find(address) or self.pinned.find(address)
        return None if block is None else block.accesses
