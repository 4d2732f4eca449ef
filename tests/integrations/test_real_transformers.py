"""Token streams of a real model, and their example. Needs the group `models`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor, reset_platform, set_current_platform
from omni_platforms.integrations.transformers import stream_tokens
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.simulator import Simulation
from tests.integrations.models import needs_models
from tests.simulated import NAME

pytestmark = [*needs_models, pytest.mark.filterwarnings("error::FutureWarning")]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "stream_tokens.py"
COUNT = 12
# Two prompts, the first of them shorter and padded on the left.
IDS = torch.tensor([[0, 0, 17, 4, 99], [30, 31, 5, 201, 77]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@pytest.fixture(scope="module")
def model() -> Any:
    return runpy.run_path(str(EXAMPLE))["tiny_llama"]()


@pytest.fixture
def cpu() -> Iterator[None]:
    set_current_platform(CpuPlatform())
    yield
    reset_platform()


def own(model: Any) -> list[list[int]]:
    """What `generate` makes of the prompts."""
    made = model.generate(
        IDS, attention_mask=MASK, max_new_tokens=COUNT, do_sample=False, pad_token_id=0
    )
    return made[:, IDS.shape[1] :].tolist()


def ours(model: Any, platform: Any, device: str, **options: Any) -> list[list[int | None]]:
    with AsyncOutputExecutor(platform) as outputs:
        steps = stream_tokens(
            model,
            IDS.to(device),
            outputs,
            attention_mask=MASK.to(device),
            max_new_tokens=COUNT,
            **options,
        )
        return [list(row) for row in zip(*steps, strict=True)]


def test_the_ids_are_those_of_generate(model: Any) -> None:
    want = own(model)
    assert len({*want[0], *want[1]}) > 6  # it does not say one id for ever
    assert ours(model, CpuPlatform(), "cpu") == want


def test_a_stop_id_ends_its_row_only(model: Any) -> None:
    want = own(model)
    stop = want[0][3]
    assert stop not in want[0][:3]
    row = ours(model, CpuPlatform(), "cpu", stop_ids={stop})[0]
    assert row == [*want[0][:4], *[None] * (len(row) - 4)]


@pytest.mark.usefixtures("cpu")
def test_the_example_prints_ids(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--tokens", "7"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    ids = [int(word) for word in capsys.readouterr().out.split()]
    assert len(ids) == 7
    assert len(set(ids)) > 2


def test_the_ids_are_the_same_on_a_simulated_device(sim: Simulation, model: Any) -> None:
    want = own(model)
    try:
        for schedule in ("eager", "lazy", "random:1"):
            sim.reset(schedule)
            assert ours(model.to(NAME), sim.platform, NAME) == want
    finally:
        model.to("cpu")
