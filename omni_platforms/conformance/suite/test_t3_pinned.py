"""T3: pinned memory: what it is, what it takes, and when it serves again."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import Rig
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = [tier("T3"), needs(Capability.PINNED_MEMORY)]

NUMBERS = 1 << 18


def pinned(platform: OmniPlatform, numbers: int = NUMBERS) -> torch.Tensor:
    """Return pinned numbers of the platform; the capability says that there are such."""
    memory = platform.pinned_empty((numbers,), torch.float32)
    assert memory is not None
    return memory


@remedy("Do not fall back to ordinary memory without a word: do not declare pinned_memory then.")
@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 5), torch.float32), ((0,), torch.int64), ((), torch.bfloat16)]
)
def test_pinned_memory_is_pinned_and_as_asked_for(
    rig: Rig, platform: OmniPlatform, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """`pinned_empty(shape, dtype)` is a contiguous host tensor like that; torch sees it pinned."""
    found = platform.pinned_empty(shape, dtype)
    assert found is not None
    assert (tuple(found.shape), found.dtype, found.device.type) == (shape, dtype, "cpu")
    assert found.is_contiguous()
    assert found.is_pinned() or found.numel() == 0


@remedy("Serve it from a cache: pinning under load stops some devices.")
def test_pinned_memory_that_serves_again_costs_no_wait(rig: Rig, platform: OmniPlatform) -> None:
    """`pinned_empty()` of a size that is cached does not make the host wait."""
    assert not rig.waits(lambda: pinned(platform))


@remedy("Keep a block back until the copies that use it are done (torch's allocator does).")
@pytest.mark.parametrize("way", ["to the host", "to the device"])
def test_pinned_memory_is_not_reused_under_a_copy(
    rig: Rig, platform: OmniPlatform, way: str
) -> None:
    """Memory that was let go with a copy under way serves again only when the copy is done."""

    def scenario() -> None:
        on_device = torch.full((NUMBERS,), 3.0, device=rig.device)
        first = pinned(platform).fill_(5.0)
        rig.keep_busy()
        if way == "to the host":
            first.copy_(on_device, non_blocking=True)
        else:
            on_device.copy_(first, non_blocking=True)
        del first
        second = pinned(platform).fill_(9.0)
        rig.finish()
        assert second.eq(9.0).all(), "a copy that was under way wrote into the next owner's memory"
        arrived = 5.0 if way == "to the device" else 3.0
        assert on_device.eq(arrived).all(), "the next owner's numbers were copied"

    rig.check(scenario)


@remedy("Give each caller its own block.")
def test_pinned_memory_belongs_to_one_owner(rig: Rig, platform: OmniPlatform) -> None:
    """Two live results of `pinned_empty()` share no byte."""
    first, second = pinned(platform, 1000).fill_(1), pinned(platform, 1000).fill_(2)
    assert first.eq(1).all()
    assert second.eq(2).all()


def _held(rig: Rig, platform: OmniPlatform) -> int:
    """Return the bytes of pinned memory that the allocator holds, as its own statistics say."""
    stats = platform.host_memory_stats()
    if rig.simulation is not None:
        stats = rig.simulation.runtime.pinned.statistics()
    if stats is None:
        pytest.skip("nobody tells how much pinned memory there is")
    return stats.get("allocated_bytes.current", 0)


@remedy("Say what the allocator takes: torch's rounds up to a power of two.")
@pytest.mark.parametrize("nbytes", [5000, (3 << 20) + 1])
def test_pinned_allocation_bytes_is_what_is_taken(
    rig: Rig, platform: OmniPlatform, nbytes: int
) -> None:
    """An allocation of n bytes takes `pinned_allocation_bytes(n)` of pinned memory."""
    rig.finish()
    if platform.release_host_memory() is None:
        pytest.skip("cached memory, which would be taken first, cannot be released")
    before = _held(rig, platform)
    kept = platform.pinned_empty((nbytes,), torch.uint8)
    taken = _held(rig, platform) - before
    assert kept is not None
    assert taken == platform.pinned_allocation_bytes(nbytes)


def test_pinned_allocation_bytes_holds_the_allocation(platform: OmniPlatform) -> None:
    """`pinned_allocation_bytes(n)` is at least n, grows with n, and is 0 for nothing."""
    sizes = [0, 1, 2, 3, 4095, 4096, 4097, 10**6, 1 << 30, 5 << 30]
    said = [platform.pinned_allocation_bytes(size) for size in sizes]
    assert said[0] == 0
    assert all(taken >= size for taken, size in zip(said, sizes, strict=True))
    assert said == sorted(said)


@needs(Capability.HOST_MEMORY_STATS)
@remedy("Return the allocator's own numbers, all of them whole.")
def test_host_memory_stats_count_an_allocation(rig: Rig, platform: OmniPlatform) -> None:
    """`host_memory_stats()` are whole numbers, and some grow by an allocation's bytes."""

    def read() -> dict[str, int]:
        return dict(platform.host_memory_stats() or {})

    before = read()
    kept = pinned(platform, 3 << 20)
    after = read()
    assert all(type(number) is int for number in after.values())
    grown = [after[name] - before.get(name, 0) for name in after]
    assert max(grown) >= kept.nbytes


@needs(Capability.RELEASE_HOST_MEMORY)
@remedy("Call the allocator's empty-cache; where there is none, do not declare it.")
def test_release_host_memory_gives_the_cache_back(rig: Rig, platform: OmniPlatform) -> None:
    """After `release_host_memory()`, pinned memory that nobody has is not held any more."""
    platform.release_host_memory()
    before = _held(rig, platform)
    kept = pinned(platform, 5 << 20)
    assert _held(rig, platform) > before
    del kept
    rig.finish()
    assert platform.release_host_memory() is True
    assert _held(rig, platform) <= before
