"""T4: outputs that the device writes into memory shared with another process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig
from omni_platforms.conformance.suite.test_t4_executor import ASYNC
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import Arena, ArenaView

pytestmark = tier("T4")

NUMBERS = 20_000
_SEGMENT_BYTES = 4 << 20


@contextlib.contextmanager
def connected(platform: OmniPlatform) -> Iterator[tuple[Arena, ArenaView]]:
    """An arena and its consumer's view, both in this process."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        Arena(platform, 0, segment_bytes=_SEGMENT_BYTES, cap=4 * _SEGMENT_BYTES) as arena,
    ):
        arena.connect(ours)
        with ArenaView.connect(theirs) as view:
            yield arena, view


@remedy("Registered memory, or the event after the copies into it: see T3.")
def test_outputs_arrive_in_shared_memory(rig: Rig, platform: OmniPlatform) -> None:
    """Each output arrives whole in shared memory though its device memory serves again at once."""

    def scenario() -> None:
        with connected(platform) as (arena, view):
            if not rig.on_cpu:
                rig.keep_busy()
            packings = []
            for number in range(3):
                image = torch.full((NUMBERS,), float(number), device=rig.device).mul_(2)
                packings.append(arena.start({"image": image, "few": image[:5]}))
                del image
                torch.full((NUMBERS,), 99.0, device=rig.device)
            for number, packing in enumerate(packings):
                got = view.unpack(packing.wait(DEADLINE_SECONDS))
                assert got["image"].eq(2.0 * number).all(), "an output has another one's bytes"
                assert got["few"].eq(2.0 * number).all()

    scenario() if rig.on_cpu else rig.check(scenario)


@needs(*ASYNC)
@remedy("A primitive of the platform waits for the device: see T2's rows on primitives.")
def test_packing_does_not_make_the_host_wait(rig: Rig, platform: OmniPlatform) -> None:
    """`Arena.start()` returns while the device is busy."""
    image = torch.ones(NUMBERS, device=rig.device)
    with connected(platform) as (arena, _):
        assert not rig.waits(lambda: arena.start(image).drop())
        rig.finish()
