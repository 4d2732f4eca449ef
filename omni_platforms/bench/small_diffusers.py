"""A pipeline of the diffusers library that needs no download: a configuration, random weights.

Needs the extra `diffusers`.
"""

from __future__ import annotations

from typing import Any

import torch

_WIDTH = 32


def small_pipeline(sample_size: int = 32, vae_levels: int = 2) -> Any:
    """Return a Stable Diffusion pipeline with random weights, always the same, on the host.

    Its pictures have `sample_size * 2 ** (vae_levels - 1)` pixels a side where a call does
    not say otherwise. Raises `ImportError` without diffusers and transformers.
    """
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
            sample_size=sample_size,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=_WIDTH,
            attention_head_dim=4,
            norm_num_groups=4,
        )
        vae = AutoencoderKL(
            block_out_channels=(8, *(16,) * (vae_levels - 1)),
            down_block_types=("DownEncoderBlock2D",) * vae_levels,
            up_block_types=("UpDecoderBlock2D",) * vae_levels,
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
