"""`Site`: what the workers of one Ray executor share at the driver."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omni_platforms.engine import spawning
from omni_platforms.engine.ray.library import load_ray
from omni_platforms.engine.ray.placement import Placement
from omni_platforms.engine.ray.reception import Reception
from omni_platforms.engine.ray.resources import bundle_of, resource_of
from omni_platforms.engine.ray.store import StoreBudget

if TYPE_CHECKING:
    from omni_platforms.engine.ray.worker import RayWorker

_STORE_SHARE = 0.5


class Site:
    """Where workers connect to, what each takes of its node, and what their outputs may take here.

    Parameters:
        platform: the name of the workers' platform.
        count: how many workers there are at first.
        resources: what one takes of its node, by Ray's names; the default when `None`.
        strategy: of the placement group of the first workers, or `None`.
        environment: variables of the workers beside their node's.
        shares_memory: whether workers of this host write into memory that this process maps.
        store_cap: bytes of outputs in Ray's object store; half of this node's when `None`.
    """

    def __init__(
        self,
        platform: str,
        count: int,
        *,
        resources: Mapping[str, float] | None,
        strategy: str | None,
        environment: Mapping[str, str] | None,
        shares_memory: bool,
        store_cap: int | None,
    ) -> None:
        self.platform = platform
        self.bundle = bundle_of(platform, resources)
        self.shares_memory = shares_memory
        ours = {name: value for name, value in os.environ.items() if name.startswith("OMNI_")}
        self.environment = {**ours, "OMNI_PLATFORM": platform, **(environment or {})}
        self.path = spawning.own_path()
        self.folder = os.getcwd()
        self._host: str = load_ray().util.get_node_ip_address()
        self._lock = threading.Lock()
        self._devices: dict[RayWorker, tuple[str, int]] = {}
        self.reception = Reception(self._host)
        try:
            self.budget = StoreBudget(_store_bytes() if store_cap is None else store_cap)
            self.placement = Placement(self.bundle, count, strategy)
        except BaseException:
            self.reception.close()
            raise
        _all.add(self)

    def is_other_host(self, address: str) -> bool:
        """Whether a node has another address than this process's."""
        return address != self._host

    def allot_device(self, worker: RayWorker, node: str) -> int:
        """Return the number of a device that no other worker of this executor has on its node.

        For platforms whose devices Ray only counts. On the CPU it is the rank, which means nothing.
        """
        if resource_of(self.platform) is None:
            return worker.setup.rank
        with self._lock:
            taken = {index for other, index in self._devices.values() if other == node}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
            self._devices[worker] = node, index
            return index

    def leave(self, worker: RayWorker) -> None:
        """Take back what was allotted to a worker."""
        with self._lock:
            self._devices.pop(worker, None)

    def close(self) -> None:
        """Let go of everything, when all workers have ended. Safe to call again."""
        self.reception.close()
        self.budget.close()
        self.placement.close()


def _store_bytes() -> int:
    """Return the share of this node's object store that outputs may take."""
    ray = load_ray()
    here = ray.get_runtime_context().get_node_id()
    sizes = [
        node["Resources"].get("object_store_memory", 0)
        for node in ray.nodes()
        if node["NodeID"] == here
    ]
    return int(sum(sizes) * _STORE_SHARE)


_all: weakref.WeakSet[Site] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for site in list(_all):
        site.reception.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
