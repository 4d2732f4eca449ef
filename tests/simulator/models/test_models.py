"""Real model code agrees with the CPU on the simulated device. Needs the group `models`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_platforms.simulator import Simulation
from tests.simulator.models import tiny

MISSING = [name for name in ("diffusers", "transformers") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        bool(MISSING), reason=f"models: {' and '.join(MISSING)} missing; pip install --group models"
    ),
]
D = "sim"
SCHEDULES = ["eager", "lazy", "lazy:0.0", "random:1"]


def moved(values: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: value.to(device) for name, value in values.items()}


def picture(
    build: Callable[[], tuple[Any, dict[str, Any]]], device: str, steps: int = 2
) -> torch.Tensor:
    """Return one picture of a pipeline with the same random weights and noise each time."""
    torch.manual_seed(0)
    pipeline, prompt = build()
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to(device)
    result = pipeline(
        **moved(prompt, device),
        height=32,
        width=32,
        num_inference_steps=steps,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    )
    return result.images


@pytest.mark.parametrize("build", tiny.PIPELINES.values(), ids=tiny.PIPELINES)
def test_pipelines(sim: Simulation, build: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
    want = picture(build, "cpu")
    assert want.std() > 0.01
    for schedule in SCHEDULES:
        sim.reset(schedule, detect_races=True)
        got = picture(build, D)
        assert got.device.type == D
        torch.testing.assert_close(got.cpu(), want, atol=1e-5, rtol=1e-4)
        assert not sim.races


def test_llama(sim: Simulation) -> None:
    torch.manual_seed(0)
    model = tiny.llama()
    ids = torch.randint(2, 99, (2, 7))
    with torch.no_grad():
        logits = model(ids).logits
        tokens = model.generate(ids, max_new_tokens=8, do_sample=False)
    model.to(D)
    for schedule in SCHEDULES:
        sim.reset(schedule, detect_races=True)
        with torch.no_grad():
            there = model(ids.to(D)).logits
            made = model.generate(ids.to(D), max_new_tokens=8, do_sample=False)
        torch.testing.assert_close(there.cpu(), logits, atol=1e-5, rtol=1e-4)
        assert made.tolist() == tokens.tolist()
        assert not sim.races


def test_llama_learns(sim: Simulation) -> None:
    """One step of AdamW changes the weights as it does on the CPU."""
    ids = torch.randint(2, 99, (2, 7), generator=torch.Generator().manual_seed(2))

    def step(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = tiny.llama().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model(ids.to(device), labels=ids.to(device)).loss.backward()
        optimizer.step()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    want = step("cpu")
    for schedule in SCHEDULES:
        sim.reset(schedule)
        torch.testing.assert_close(step(D), want, atol=1e-4, rtol=1e-3)


def test_text_encoders(sim: Simulation) -> None:
    torch.manual_seed(0)
    ids = torch.randint(2, 98, (2, 7))
    for name, model in tiny.text_encoders().items():
        with torch.no_grad():
            want = model(ids).last_hidden_state
            sim.reset("lazy")
            got = model.to(D)(ids.to(D)).last_hidden_state
        torch.testing.assert_close(got.cpu(), want, atol=1e-5, rtol=1e-4, msg=name)
