"""Mutants of a vendor's platform, where the neutral simulated one lacks the primitive: npu."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from omni_platforms.platform.interface import OmniPlatform as P
from tests.conformance.mutants.mutant import Mutant, both, faults, replacing, wrapping
from tests.conformance.mutants.ordering import HANDED


@contextlib.contextmanager
def _sticky(original: Any, self: P, mode: str) -> Iterator[None]:
    original(self, mode).__enter__()
    yield


def _npu_event(self: P, stream: Any = None) -> Any:
    event = torch.get_device_module("npu").Event()
    event.record()
    return event


@contextlib.contextmanager
def _mode_restored(place: Any) -> Iterator[None]:
    yield
    torch.get_device_module("npu").set_sync_debug_mode(0)


MUTANTS = [
    Mutant("npu-native-event", "the event of torch_npu, which a generic stream ignores",
           HANDED, replacing(record_device_event=_npu_event), "K1", "npu"),
    Mutant("npu-another-variable", "`device_control_env_var` is another vendor's",
           "test_identity_is_what_the_vendor_uses",
           replacing(device_control_env_var="CUDA_VISIBLE_DEVICES"), target="npu"),
    Mutant("npu-priority-ignored", "`create_side_stream()` ignores `priority`",
           "test_priorities_are_told_apart",
           wrapping("create_side_stream", lambda original, self, device=None, *, priority=0:
                    original(self, device)), target="npu"),
    Mutant("npu-sync-debug-silent", "`sync_debug()` switches nothing on",
           "test_sync_debug_reports_waits_of_the_host",
           replacing(sync_debug=lambda self, mode: contextlib.nullcontext()), target="npu"),
    Mutant("npu-sync-debug-stays-on", "`sync_debug()` stays on after its block",
           "test_sync_debug_reports_waits_of_the_host",
           both(wrapping("sync_debug", _sticky), _mode_restored), target="npu"),
    Mutant("npu-no-memory-info", "torch_npu lacks `mem_get_info`",
           "test_memory_info_is_in_bytes", faults("missing-method:module.mem_get_info"), "K11",
           "npu"),
]  # fmt: skip
