"""`AsyncPipeline` around a real pipeline, and its example. Needs the group `models`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from omni_platforms import reset_platform, set_current_platform
from omni_platforms.bench.small_diffusers import small_pipeline
from omni_platforms.integrations.diffusers import AsyncPipeline
from omni_platforms.platform.cpu import CpuPlatform
from tests.integrations.models import needs_models

pytestmark = needs_models
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "async_pipeline.py"


@pytest.fixture(autouse=True)
def _cpu() -> Iterator[None]:
    set_current_platform(CpuPlatform())
    yield
    reset_platform()


def test_the_pictures_are_the_pipelines_own() -> None:
    pipeline = small_pipeline()
    pipeline.set_progress_bar_config(disable=True)

    def arguments() -> dict[str, object]:
        generator = torch.Generator().manual_seed(4)
        return {"num_inference_steps": 2, "num_images_per_prompt": 2, "generator": generator}

    own = pipeline("a harbour", **arguments()).images
    with AsyncPipeline(pipeline) as images:
        ours = images("a harbour", **arguments()).result(60)
    assert len(own) == len(ours) == 2
    for want, got in zip(own, ours, strict=True):
        assert got.mode == want.mode == "RGB"
        assert np.array_equal(np.array(got), np.array(want))
        assert np.array(got).std() > 5


def test_the_example_saves_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--out", str(tmp_path), "--steps", "2"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    pictures = [np.array(Image.open(tmp_path / f"{number}.png")) for number in range(4)]
    assert [picture.shape for picture in pictures] == [(64, 64, 3)] * 4
    assert len({picture.tobytes() for picture in pictures}) == 4
    assert len(capsys.readouterr().out.splitlines()) == 4
