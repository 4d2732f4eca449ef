"""Mutants of identity, devices and memory: what T0 and T1 are for."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch

from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import MemoryInfo
from omni_platforms.platform.interface import OmniPlatform as P
from tests.conformance.mutants.mutant import Mutant, Place, Plant, both, faults, replacing, wrapping

MIB = 1 << 20


def _capabilities(add: set[Any] | None = None, remove: set[Any] | None = None) -> Plant:
    def plant(place: Place) -> Any:
        changed = (place.platform.capabilities | (add or set())) - (remove or set())
        return replacing(capabilities=changed)(place)

    return plant


def _remember_device() -> Plant:
    first: list[torch.device] = []

    def current(original: Any, self: P) -> torch.device:
        first.append(original(self))
        return first[0]

    return wrapping("current_device", current)


def _one_device_for_all_threads() -> Plant:
    shared = [0]

    def set_device(original: Any, self: P, device: Any) -> None:
        shared[0] = self.resolve_device(device).index
        original(self, device)

    def current_device(original: Any, self: P) -> torch.device:
        return torch.device(self.device_type, shared[0])

    @contextlib.contextmanager
    def plant(place: Place) -> Any:
        shared[0] = 0
        with (
            wrapping("set_device", set_device)(place),
            wrapping("current_device", current_device)(place),
        ):
            yield

    return plant


def _inherited() -> Plant:
    """Threads that have not set a device are told the one that was set last by any thread."""
    mine, last = threading.local(), [0]

    def set_device(original: Any, self: P, device: Any) -> None:
        original(self, device)
        mine.set, last[0] = True, self.resolve_device(device).index

    def current_device(original: Any, self: P) -> torch.device:
        if hasattr(mine, "set") or threading.current_thread() is threading.main_thread():
            found: torch.device = original(self)
            return found
        return torch.device(self.device_type, last[0])

    return both(wrapping("set_device", set_device), wrapping("current_device", current_device))


def _too_much(original: Any, self: P, device: Any = None) -> MemoryInfo:
    total = original(self, device).total
    return MemoryInfo(total + 1, total)


def _first_stream_only(original: Any, self: P, device: Any = None) -> None:
    torch.accelerator.current_stream(self.resolve_device(device)).synchronize()


def _of_current(original: Any, self: P, device: Any = None) -> Any:
    return original(self, None)


def _every_device(original: Any, self: P, device: Any = None) -> None:
    for index in range(torch.accelerator.device_count()):
        original(self, index)


def _stay(original: Any, self: P, device: Any = None) -> None:
    found = self.resolve_device(device)
    original(self, found)
    torch.accelerator.set_device_index(found.index)


MUTANTS = [
    Mutant(
        "vendor-without-a-name", "`vendor` is empty",
        "test_identity_is_well_formed", replacing(vendor=""),
    ),
    Mutant(
        "two-predicates", "`is_cuda()` is true of another platform",
        "test_one_predicate_is_true", replacing(is_cuda=lambda self: True),
    ),
    Mutant(
        "capabilities-as-texts", "`capabilities` holds texts instead of members of the enumeration",
        "test_capabilities_are_declared_as_such",
        replacing(capabilities=frozenset({"device_events", "pinned"})),
    ),
    Mutant(
        "other-argument-names", "`set_device(index)` instead of `set_device(device)`",
        "test_methods_keep_the_signatures_of_the_contract",
        replacing(set_device=lambda self, index: torch.accelerator.set_device_index(
            self.resolve_device(index).index)),
    ),
    Mutant(
        "capabilities-that-can-change", "`capabilities` is a set that anybody can change",
        "test_capabilities_are_declared_as_such",
        lambda place: replacing(capabilities=set(place.platform.capabilities))(place),
    ),
    Mutant(
        "capability-claimed", "declares `sync_debug`, which answers None",
        "test_a_primitive_answers_if_and_only_if_it_is_declared",
        _capabilities(add={Capability.SYNC_DEBUG}),
    ),
    Mutant(
        "capability-hidden", "does not declare `memory_info`, which answers",
        "test_a_primitive_answers_if_and_only_if_it_is_declared",
        _capabilities(remove={Capability.MEMORY_INFO}),
    ),
    Mutant(
        "none-where-declared", "`record_device_event()` answers None though it is declared",
        "test_a_primitive_answers_if_and_only_if_it_is_declared",
        replacing(record_device_event=lambda self, stream=None: None),
    ),
    Mutant(
        "one-device-too-many", "`device_count()` counts one more",
        "test_devices_are_counted_and_numbered",
        wrapping("device_count", lambda original, self: original(self) + 1),
    ),
    Mutant(
        "one-device-too-few", "`device_count()` counts one less",
        "test_devices_are_counted_and_numbered",
        wrapping("device_count", lambda original, self: original(self) - 1),
    ),
    Mutant(
        "device-ignores-its-index", "`device(index)` is device 0",
        "test_devices_are_counted_and_numbered",
        wrapping("device", lambda original, self, index=0: original(self, 0)),
    ),
    Mutant(
        "set-device-noop", "setting the current device does nothing",
        "test_set_device_changes_the_current_device", faults("set-device-noop"), "K9",
    ),
    Mutant(
        "set-device-does-nothing", "`set_device()` of the platform is empty",
        "test_set_device_changes_the_current_device",
        replacing(set_device=lambda self, device: None), "K9",
    ),
    Mutant(
        "no-way-back-to-device-0", "`set_device(0)` does nothing",
        "test_set_device_changes_the_current_device",
        wrapping("set_device", lambda original, self, device: (
            original(self, device) if self.resolve_device(device).index else None)), "K9",
    ),
    Mutant(
        "current-device-remembered", "`current_device()` is what it was at the first call",
        "test_current_device_follows_whoever_changes_it", _remember_device(),
    ),
    Mutant(
        "always-the-current-device", "`is_current_device()` is always true",
        "test_current_device_follows_whoever_changes_it",
        replacing(is_current_device=lambda self, device: True),
    ),
    Mutant(
        "never-the-current-device", "`is_current_device()` is always false",
        "test_current_device_follows_whoever_changes_it",
        replacing(is_current_device=lambda self, device: False),
    ),
    Mutant(
        "new-threads-inherit-the-device", "a new thread is said to be on its creator's device",
        "test_each_thread_has_its_own_current_device", _inherited(), "K9",
    ),
    Mutant(
        "one-current-device-for-all-threads", "the platform keeps one current device a process",
        "test_each_thread_has_its_own_current_device", _one_device_for_all_threads(),
    ),
    Mutant(
        "name-of-another-device", "`device_name()` is another vendor's model",
        "test_device_name_is_the_model", replacing(device_name=lambda self, index=0: "Other 9000"),
    ),
    Mutant(
        "uuid-ignores-its-index", "`device_uuid(index)` is that of device 0",
        "test_device_uuid_tells_devices_apart",
        wrapping("device_uuid", lambda original, self, index=0: original(self, 0)),
    ),
    Mutant(
        "capability-as-text", "`device_capability()` is the text \"1.0\"",
        "test_device_capability_is_two_numbers",
        replacing(device_capability=lambda self, index=0: "1.0"),
    ),
    Mutant(
        "numa-node-of-nowhere", "`numa_node()` is a node that the host does not have",
        "test_numa_node_exists", replacing(numa_node=lambda self, index=0: 4711),
    ),
    Mutant(
        "any-device-is-ours", "`resolve_device()` takes devices of other types for its own",
        "test_resolve_device_takes_every_way_to_name_one",
        wrapping("resolve_device", lambda original, self, device=None: (
            self.device(0) if str(device) == "meta" else original(self, device))),
    ),
    Mutant(
        "profiler-of-the-host", "`profiler_activity` is the host's",
        "test_profiler_activity_is_one_of_torchs",
        replacing(profiler_activity=property(lambda self: torch.profiler.ProfilerActivity.CPU)),
    ),
    Mutant(
        "megabytes-for-bytes", "`memory_info()` counts megabytes",
        "test_memory_info_is_in_bytes",
        wrapping("memory_info", lambda original, self, device=None: MemoryInfo(
            *(part // MIB for part in original(self, device)))),
    ),
    Mutant(
        "twice-the-total", "`memory_info()` says twice the memory that there is",
        "test_memory_info_is_in_bytes",
        wrapping("memory_info", lambda original, self, device=None: MemoryInfo(
            original(self, device).free, 2 * original(self, device).total)),
    ),
    Mutant(
        "free-above-total", "`memory_info()` has more free than there is",
        "test_memory_info_is_in_bytes", wrapping("memory_info", _too_much),
    ),
    Mutant(
        "memory-of-the-current-device", "`memory_info(device)` ignores `device`",
        "test_memory_info_sees_what_is_allocated_where", wrapping("memory_info", _of_current),
    ),
    Mutant(
        "cache-kept", "`empty_cache()` does nothing",
        "test_empty_cache_gives_memory_back", replacing(empty_cache=lambda self: None),
    ),
    Mutant(
        "synchronize-nothing", "`synchronize()` returns at once",
        "test_synchronize_waits_for_all_streams_of_the_device",
        replacing(synchronize=lambda self, device=None: None),
    ),
    Mutant(
        "synchronize-one-stream", "`synchronize()` waits for the current stream only",
        "test_synchronize_waits_for_all_streams_of_the_device",
        wrapping("synchronize", _first_stream_only),
    ),
    Mutant(
        "synchronize-the-first-device", "`synchronize()` without a device means device 0",
        "test_synchronize_without_a_device_means_the_current_one",
        wrapping("synchronize", lambda original, self, device=None: original(
            self, 0 if device is None else device)),
    ),
    Mutant(
        "synchronize-every-device", "`synchronize(device)` waits for the other devices too",
        "test_synchronize_leaves_the_other_device_alone", wrapping("synchronize", _every_device),
    ),
    Mutant(
        "synchronize-changes-the-device", "`synchronize(device)` leaves `device` current",
        "test_synchronize_waits_for_all_streams_of_the_device", wrapping("synchronize", _stay),
    ),
]  # fmt: skip
