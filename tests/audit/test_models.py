"""What makes the host wait in real pipelines of diffusers. Needs the group `models`."""

from __future__ import annotations

from collections import Counter

import torch

from omni_platforms.audit import SyncAudit
from omni_platforms.audit.steps import module_is_step
from tests.simulator.models import tiny
from tests.simulator.models.test_models import pytestmark as needs_models

pytestmark = needs_models
STEPS = 10


def audit(sim, name: str, module: str) -> Counter[tuple[str, str]]:
    """Return how often each file of diffusers waited inside steps, by kind."""
    pipeline, prompt = tiny.PIPELINES[name]()
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to("sim")
    prompt = {key: value.to("sim") for key, value in prompt.items()}
    with module_is_step(module), SyncAudit(sim.platform, detail="full") as running:
        pipeline(**prompt, num_inference_steps=STEPS, height=16, width=16, output_type="latent")
        torch.accelerator.synchronize()
    report = running.report()
    assert report.steps == STEPS
    found: Counter[tuple[str, str]] = Counter()
    for site in report.sites:
        if site.per_step and "diffusers" in site.path:
            found[site.path.rpartition("/")[2], site.kind] += site.count
    return found


def test_the_scheduler_reads_its_timestep(sim) -> None:
    found = audit(sim, "stable diffusion", "UNet2DConditionModel")
    assert set(found) == {
        ("scheduling_ddim.py", "scalar_read"),
        ("scheduling_ddim.py", "truth_value"),
    }
    assert all(count >= STEPS for count in found.values())


def test_flux_waits_for_nothing_in_its_steps(sim) -> None:
    assert audit(sim, "flux", "FluxTransformer2DModel") == Counter()
