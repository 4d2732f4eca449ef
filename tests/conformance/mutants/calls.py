"""Mutants of calls that wait, or are missing, and of collectives and graphs."""

from __future__ import annotations

import threading
from typing import Any

from omni_platforms.platform.interface import OmniPlatform as P
from tests.conformance.mutants.mutant import Mutant, Plant, faults, replacing, wrapping
from tests.conformance.mutants.ordering import HANDED, NO_WAIT


def _capturing_anywhere() -> Plant:
    """A flag of the process instead of the calling thread's stream."""
    seen = threading.Event()

    def is_capturing(original: Any, self: P, device: Any = None) -> bool:
        if original(self, device):
            seen.set()
        elif threading.current_thread() is threading.main_thread():
            seen.clear()
        return seen.is_set()

    return wrapping("is_capturing", is_capturing)


def _hidden(primitive: str, caught_by: str = NO_WAIT) -> Mutant:
    return Mutant(
        f"hidden-wait-in-{primitive}",
        f"the device's `{primitive}` makes the host wait",
        caught_by,
        faults(f"hidden-host-sync:{primitive}"),
        "K12",
    )


def _missing(method: str, caught_by: str, error: str = "RuntimeError") -> Mutant:
    return Mutant(
        f"missing-{method}",
        f"torch's generic `{method}` raises {error} on the device",
        caught_by,
        faults(f"missing-method:{method}={error}"),
        "K11",
    )


MUTANTS = [
    *(_hidden(name) for name in
      ("record-event", "wait-event", "query-event", "new-stream", "set-stream", "set-device")),
    _hidden("allocate", "test_work_is_enqueued_without_a_wait"),
    _hidden("pin", "test_pinned_memory_that_serves_again_costs_no_wait"),
    _hidden("copy-to-host", "test_a_copy_to_pinned_memory_does_not_make_the_host_wait"),
    _missing("record-event", HANDED),
    _missing("wait-event", HANDED, "AttributeError"),
    _missing("synchronize-device", "test_synchronize_waits_for_all_streams_of_the_device"),
    _missing("empty-cache", "test_empty_cache_gives_memory_back", "AssertionError"),
    _missing("pin", "test_pinned_memory_is_pinned_and_as_asked_for", "NotImplementedError"),
    Mutant("invisible-comm-stream", "a collective writes from a stream that no event covers",
           "test_an_event_covers_a_collective_that_was_waited_for",
           faults("invisible-comm-stream"), "K6"),
    Mutant("another-backend", "`dist_backend` cannot take the device's tensors",
           "test_the_backend_gathers_tensors_of_the_device", replacing(dist_backend="gloo")),
    Mutant("never-capturing", "`is_capturing()` is always false",
           "test_submit_during_a_capture_is_refused",
           replacing(is_capturing=lambda self, device=None: False)),
    Mutant("capturing-anywhere", "`is_capturing()` is true while any thread captures",
           "test_is_capturing_sees_a_capture_of_this_stream", _capturing_anywhere()),
]  # fmt: skip
