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

_ALWAYS = {"output_type": "pt"}  # a tensor on the device: the executor takes it to the host
_NOT_FOR_THE_PIPELINE = ("id", "seed")
_WIDTH = 32


class DiffusersWorker:
    """Runs one text-to-image pipeline.

    `config` may hold "checkpoint" (a folder that `DiffusionPipeline.from_pretrained` reads),
    its "dtype" ("float32" when it is not there) and "defaults" (arguments for requests that omit
    them).
    """

    def __init__(self, rank: int, device: torch.device, config: dict[str, Any] | None) -> None:
        config = config or {}
        checkpoint, dtype = config.get("checkpoint"), config.get("dtype", "float32")
        pipeline = tiny_pipeline() if checkpoint is None else load(checkpoint, dtype)
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


def tiny_pipeline() -> Any:
    """Return a Stable Diffusion pipeline of two levels with random weights, always the same."""
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )

    tokenizer = _tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        unet = UNet2DConditionModel(
            sample_size=32,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=_WIDTH,
            attention_head_dim=4,
            norm_num_groups=4,
        )
        vae = AutoencoderKL(
            block_out_channels=(8, 16),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
            norm_num_groups=4,
        )
        return StableDiffusionPipeline(
            vae=vae,
            text_encoder=_text_encoder(tokenizer),
            tokenizer=tokenizer,
            unet=unet,
            scheduler=DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )


def _text_encoder(tokenizer: Any) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=_WIDTH,
            intermediate_size=37,
            num_attention_heads=4,
            num_hidden_layers=2,
            max_position_embeddings=tokenizer.model_max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def _tokenizer() -> Any:
    """Return CLIP's tokenizer with letters for words: a vocabulary that needs no download."""
    from transformers import CLIPTokenizer

    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
