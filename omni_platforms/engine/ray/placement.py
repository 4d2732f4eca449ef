"""Where workers go: a bundle of a placement group for each.

The first workers share one group where the caller names a strategy, or where they work in
lockstep (all or none of them). Otherwise each has a group of its own, so that a worker that
leaves gives its device back to the cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from omni_platforms.engine.ray.library import is_connected, load_ray
from omni_platforms.errors import WorkerStartError

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class Slot(NamedTuple):
    """The place of one worker."""

    group: Any
    bundle: int

    def options(self) -> dict[str, Any]:
        """Return the options of an actor that is to go there."""
        load_ray()
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, self.bundle)}


class Placement:
    """The placement groups of one executor. Any thread may call it.

    `bundle` is what one worker takes; `strategy` is Ray's, for the first `count` together.
    """

    def __init__(self, bundle: Mapping[str, float], count: int, strategy: str | None) -> None:
        self._bundle = dict(bundle)
        self._lock = threading.Lock()
        self._free: list[Slot] = []
        self._groups: list[Any] = []
        self._together: Any = None
        if strategy is not None:
            self._together = self._new_group(count, strategy)
            self._free = [Slot(self._together, index) for index in range(count)]

    def take(self) -> Slot:
        """Return a free place, or a new one, which the cluster may have to wait for."""
        with self._lock:
            return self._free.pop(0) if self._free else Slot(self._new_group(1, "PACK"), 0)

    def give_back(self, slot: Slot) -> None:
        """Take a place back: its resources go to the cluster, or wait for the next worker."""
        with self._lock:
            if slot.group is self._together:
                self._free.append(slot)
            elif slot.group in self._groups:
                self._remove(slot.group)

    def wait(self, slot: Slot, timeout: float) -> None:
        """Block until the cluster has room for a group, at most `timeout` seconds.

        Raises `WorkerStartError` when it has none.
        """
        if slot.group.wait(timeout):
            return
        ray = load_ray()
        raise WorkerStartError(
            f"the Ray cluster has had no room for {slot.group.bundle_specs} for {timeout:.0f} s. "
            f"It has {_amounts(ray.cluster_resources())}, of which these are free: "
            f"{_amounts(ray.available_resources())}. Add nodes, start fewer workers, "
            "or name other `resources`."
        )

    def close(self) -> None:
        """Give everything back."""
        with self._lock:
            for group in list(self._groups):
                self._remove(group)
            self._free.clear()

    def _new_group(self, count: int, strategy: str) -> Any:
        load_ray()
        from ray.util.placement_group import placement_group

        group = placement_group([self._bundle] * count, strategy=strategy)
        self._groups.append(group)
        return group

    def _remove(self, group: Any) -> None:
        from ray.util.placement_group import remove_placement_group

        self._groups.remove(group)
        if is_connected():
            remove_placement_group(group)


def _amounts(resources: Mapping[str, float]) -> dict[str, float]:
    return {k: v for k, v in resources.items() if not k.startswith(("node:", "bundle"))}
