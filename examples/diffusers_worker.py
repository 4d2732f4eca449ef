"""A pipeline of the diffusers library as a worker class, for `omni-platforms run`.

    pip install 'omni-platforms[diffusers]'
    omni-platforms run examples/diffusers_worker.py:DiffusersWorker \\
        --requests examples/prompts.jsonl --out pictures

Without a config it builds a Stable Diffusion pipeline from its configuration, tiny and with random
weights: nothing is downloaded, and the pictures are noise. With a checkpoint on this machine it
makes pictures:

    --config '{"checkpoint": "/models/stable-diffusion-xl", "dtype": "float16"}'

Whatever a request holds, but "id" and "seed", is an argument of the pipeline's call: "prompt",
"num_inference_steps", "guidance_scale", "height", "width", ...
"""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.bench.small_diffusers import small_pipeline

_ALWAYS = {"output_type": "pt"}  # a tensor on the device: the executor takes it to the host
_NOT_FOR_THE_PIPELINE = ("id", "seed")


class DiffusersWorker:
    """Runs one text-to-image pipeline.

    `config` may hold "checkpoint" (a folder that `DiffusionPipeline.from_pretrained` reads),
    its "dtype" ("float32" when it is not there) and "defaults" (arguments for requests that omit
    them).
    """

    def __init__(self, rank: int, device: torch.device, config: dict[str, Any] | None) -> None:
        config = config or {}
        checkpoint, dtype = config.get("checkpoint"), config.get("dtype", "float32")
        pipeline = small_pipeline() if checkpoint is None else load(checkpoint, dtype)
        self.pipeline = pipeline.to(device)
        self.pipeline.set_progress_bar_config(disable=True)
        self.defaults = config.get("defaults", {})

    @torch.no_grad()
    def execute_model(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request's pictures as uint8 `[height, width, 3]`, on the device."""
        arguments = {**self.defaults, **request, **_ALWAYS}
        seed = arguments.get("seed", 0)
        for name in _NOT_FOR_THE_PIPELINE:
            arguments.pop(name, None)
        generator = torch.Generator("cpu").manual_seed(seed)  # the same noise on every device
        pictures = self.pipeline(**arguments, generator=generator).images
        pixels = (pictures.float() * 255).round_().to(torch.uint8).permute(0, 2, 3, 1)
        return {"seed": seed, "images": [picture.contiguous() for picture in pixels]}


def load(checkpoint: str, dtype: str) -> Any:
    """Return the pipeline of a checkpoint that is on this machine. Downloads nothing."""
    from diffusers import DiffusionPipeline

    return DiffusionPipeline.from_pretrained(
        checkpoint, torch_dtype=getattr(torch, dtype), local_files_only=True
    )
