"""The audit of our own executor: submitting an output never makes the submitting thread wait.

But where it costs nothing: somebody asked for one of the last outputs at once, and the device
has nothing to do. Then `submit` copies there and then (`outputs/direct.py`), and the audit says so.
"""

from __future__ import annotations

import pytest
import torch

from omni_platforms.audit import SyncAudit
from omni_platforms.outputs import AsyncOutputExecutor, small
from tests.simulated import NAME

SHAPES = [(16,), (64, 512)]  # copied on the caller's stream; on the side stream


@pytest.mark.parametrize("shape", SHAPES)
def test_submitting_waits_for_nothing(sim, shape: tuple[int, ...]) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(shape, device=NAME)
        outputs.submit(image).result(30)
        for _ in range(3):  # nobody asks for these at once
            outputs.submit(image)
        outputs.drain(30)
        before = sim.host_waits_of()
        with SyncAudit(sim.platform, detail="full") as audit:
            futures = []
            for _ in range(20):
                with audit.step():
                    image = image + 1
                    futures.append(outputs.submit({"image": image, "step": 1}))
        waited = sim.host_waits_of() - before
        assert [future.result(30)["image"].max().item() for future in futures[-2:]] == [20.0, 21.0]
    assert [(site.where, site.kind) for site in audit.report().sites] == []
    assert waited == 0  # the simulator's own count agrees


def test_a_copy_right_in_submit_is_seen(sim) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(16, device=NAME)
        outputs.submit(image).result(30)
        sim.platform.synchronize()
        with SyncAudit(sim.platform) as audit:
            outputs.submit(image)
    (site,) = audit.report().sites
    assert (site.kind, site.count) == ("to_cpu", 1)
    assert site.source == "outputs.submit(image)"


def test_a_wait_planted_in_submit_is_found(sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a copy that is not asynchronous: each submit waits, on the caller's line."""

    def start(self, leaf):
        return torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True).copy_(leaf)

    monkeypatch.setattr(small.SmallCopies, "start", start)
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(16, device=NAME)
        with SyncAudit(sim.platform, detail="full") as audit:
            for _ in range(3):
                outputs.submit(image).result(30)
    kinds = {site.kind for site in audit.report().sites}
    assert "d2h_blocking" in kinds
