"""T3: pinning memory that exists already."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import Rig
from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.registration import RegisteredHostMemory

pytestmark = [tier("T3"), needs(Capability.HOST_REGISTRATION)]

NBYTES = 1 << 20


def registered(platform: OmniPlatform, buffer: object) -> RegisteredHostMemory:
    """Return the memory of `buffer`, registered; the capability says that this works."""
    memory = platform.register_host_memory(buffer)
    assert memory is not None
    return memory


def _is_pinned(tensor: torch.Tensor) -> bool:
    return tensor.is_pinned()


@remedy("Register the memory in place; the tensor is a view of it, not a copy.")
def test_the_device_writes_into_the_very_memory(rig: Rig, platform: OmniPlatform) -> None:
    """What the device copies into `.tensor` is in the caller's buffer; its type is uint8, flat."""
    buffer = bytearray(NBYTES)
    with registered(platform, buffer) as memory:
        assert (memory.tensor.dtype, tuple(memory.tensor.shape)) == (torch.uint8, (NBYTES,))
        value = torch.full((NBYTES,), 7, dtype=torch.uint8, device=rig.device)
        memory.tensor.copy_(value, non_blocking=True)
        rig.finish()
    assert set(buffer) == {7}


@remedy("The vendor's register call failed quietly, or registered other pages.")
def test_registered_memory_is_pinned_until_closed(rig: Rig, platform: OmniPlatform) -> None:
    """torch sees the memory as pinned while it is registered, and not before and after."""
    host = torch.zeros(NBYTES, dtype=torch.uint8)
    seen = [host.is_pinned()]
    with registered(platform, host):
        seen.append(host.is_pinned())
    seen.append(host.is_pinned())
    assert seen == [False, True, False]


@remedy("Unregister once, and remember that it was done.")
def test_memory_is_unregistered_once(rig: Rig, platform: OmniPlatform) -> None:
    """`close()` twice is as good as once; the same memory can be registered again and again."""
    host = torch.zeros(NBYTES, dtype=torch.uint8)
    for _ in range(3):
        memory = registered(platform, host)
        assert not memory.closed
        memory.close()
        memory.close()
        assert memory.closed
        with pytest.raises(ValueError, match="no longer registered"):
            memory.tensor  # noqa: B018 - reading it is what raises


@remedy("Turn the runtime's error into HostRegistrationError, and clear it in the runtime.")
def test_a_refusal_is_an_error_of_its_own_and_of_no_later_call(
    rig: Rig, platform: OmniPlatform
) -> None:
    """Memory that is registered already raises `HostRegistrationError`; all else goes on."""
    host = torch.zeros(NBYTES, dtype=torch.uint8)
    with registered(platform, host):
        with pytest.raises(HostRegistrationError):
            platform.register_host_memory(host)
        assert torch.ones(8, device=rig.device).sum().item() == 8
        rig.finish()
        assert _is_pinned(host), "the refusal undid the registration that was there"


@remedy("Let omni_platforms.platform.registration.as_byte_tensor check the buffer.")
def test_what_cannot_be_registered_is_refused(rig: Rig, platform: OmniPlatform) -> None:
    """Read-only, scattered, empty and device memory raise `TypeError` or `ValueError`."""
    host = torch.zeros(64, 64, dtype=torch.uint8)
    for wrong in (b"read-only", host[:, ::2], bytearray(), torch.zeros(64, device=rig.device)):
        with pytest.raises((TypeError, ValueError)):
            platform.register_host_memory(wrong)
