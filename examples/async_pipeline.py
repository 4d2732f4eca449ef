"""A diffusers pipeline that starts the next call while the last pictures are still on their way.

    pip install 'omni-platforms[diffusers]'
    python examples/async_pipeline.py --out pictures

It builds a tiny pipeline with random weights, so nothing is downloaded and the pictures are
noise. Name a folder with a checkpoint to see more: `--checkpoint /models/stable-diffusion-xl`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from omni_platforms import current_platform
from omni_platforms.bench.small_diffusers import small_pipeline
from omni_platforms.integrations.diffusers import AsyncPipeline, png

PROMPTS = ("a harbour at dawn", "a mountain lake", "a street in the rain", "a field of rape")


def load(checkpoint: str | None) -> Any:
    """Return a pipeline on the current platform's first device."""
    if checkpoint is None:
        pipeline = small_pipeline()
    else:
        from diffusers import DiffusionPipeline

        pipeline = DiffusionPipeline.from_pretrained(checkpoint, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(current_platform().device(0))


def main() -> None:
    """Make a picture of each prompt, and save them in the order in which they were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    parser.add_argument("--checkpoint", help="a folder that DiffusionPipeline reads")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    with AsyncPipeline(load(options.checkpoint), encode=png) as pipeline:
        futures = {}
        for number, prompt in enumerate(PROMPTS):
            generator = torch.Generator("cpu").manual_seed(number)
            futures[prompt] = pipeline(
                prompt, num_inference_steps=options.steps, generator=generator
            )  # the next call starts at once
        for number, (prompt, future) in enumerate(futures.items()):
            (picture,) = future.result()
            path = options.out / f"{number}.png"
            path.write_bytes(picture)
            print(f"{path}: {prompt}, {len(picture)} bytes")


if __name__ == "__main__":
    main()
