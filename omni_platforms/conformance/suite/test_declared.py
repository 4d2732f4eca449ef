"""T1 to T5: a capability that is declared answers, and one that is not answers `None`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_platforms.conformance.marks import remedy, tier
from omni_platforms.conformance.rig import Rig
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

Primitive = Callable[[OmniPlatform], Any]


def _register(platform: OmniPlatform) -> Any:
    registered = platform.register_host_memory(bytearray(1 << 16))
    if registered is not None:
        registered.close()
    return registered


PRIMITIVES: list[tuple[str, Capability, Primitive]] = [
    ("T1", Capability.MEMORY_INFO, lambda platform: platform.memory_info(0)),
    ("T1", Capability.DEVICE_UUID, lambda platform: platform.device_uuid(0)),
    ("T1", Capability.DEVICE_CAPABILITY, lambda platform: platform.device_capability(0)),
    ("T2", Capability.SIDE_STREAMS, lambda platform: platform.create_side_stream()),
    ("T2", Capability.SIDE_STREAMS, lambda platform: platform.current_stream()),
    ("T2", Capability.DEVICE_EVENTS, lambda platform: platform.record_device_event()),
    ("T2", Capability.SYNC_DEBUG, lambda platform: platform.sync_debug("warn")),
    ("T3", Capability.PINNED_MEMORY, lambda platform: platform.pinned_empty((4,), torch.float32)),
    ("T3", Capability.HOST_REGISTRATION, _register),
    ("T3", Capability.HOST_MEMORY_STATS, lambda platform: platform.host_memory_stats()),
    ("T3", Capability.RELEASE_HOST_MEMORY, lambda platform: platform.release_host_memory()),
]


@pytest.mark.parametrize(
    ("capability", "primitive"),
    [
        pytest.param(capability, primitive, marks=tier(name), id=f"{capability.value}-{number}")
        for number, (name, capability, primitive) in enumerate(PRIMITIVES)
    ],
)
@remedy("Declare what the platform has in `capabilities`, and return None for everything else.")
def test_a_primitive_answers_if_and_only_if_it_is_declared(
    rig: Rig, platform: OmniPlatform, capability: Capability, primitive: Primitive
) -> None:
    """A declared capability's primitive answers; an undeclared one's answers `None`."""
    declared = capability in platform.capabilities
    answer = primitive(platform)
    assert (answer is not None) == declared, f"declared: {declared}, answer: {answer!r}"
