"""Both runs on a simulated accelerator, where copies really are asynchronous."""

from __future__ import annotations

import torch

from omni_platforms.demo.async_run import run_async
from omni_platforms.demo.blocking_run import run_blocking
from omni_platforms.demo.record import different
from omni_platforms.demo.restore import Restorer
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.simulator import Simulation

from .conftest import picture


def nothing() -> None:
    return None


def test_both_runs_make_the_same_pictures(sim: Simulation) -> None:
    platform, device = sim.platform, torch.device("sim", 0)
    photo = torch.from_numpy(picture()).permute(2, 0, 1)[None].contiguous().to(device)
    restore = Restorer(device, steps=3)
    blocking = run_blocking(restore, [photo] * 7, 1, platform, device, nothing)
    with AsyncOutputExecutor(platform, device) as outputs:
        asynchronous = run_async(restore, [photo] * 7, 1, outputs, nothing)
    assert asynchronous.mode == "async"
    assert different(blocking, asynchronous) == []
    assert blocking.bytes_moved == 7 * 40 * 30 * 3 * 4
    assert asynchronous.bytes_moved == 7 * 40 * 30 * 3
    for lane in asynchronous.lanes.values():
        assert [span.request for span in lane] == list(range(7))
        assert all(span.end >= span.start >= asynchronous.start for span in lane)
