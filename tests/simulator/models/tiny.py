"""Tiny diffusion pipelines and language models with random weights; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def flux() -> tuple[Any, dict[str, Any]]:
    """A Flux pipeline of two blocks, and the embeddings of a prompt."""
    import diffusers

    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    pipeline = diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_decoder(latent_channels=1, shift_factor=0.1),
        text_encoder=None,
        tokenizer=None,
        text_encoder_2=None,
        tokenizer_2=None,
        transformer=transformer,
    )
    return pipeline, _prompt(32, 32)


def stable_diffusion_3() -> tuple[Any, dict[str, Any]]:
    """A Stable Diffusion 3 pipeline of one block, with classifier-free guidance."""
    import diffusers

    transformer = diffusers.SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    pipeline = diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_decoder(latent_channels=4, shift_factor=0.1),
        text_encoder=None,
        tokenizer=None,
        text_encoder_2=None,
        tokenizer_2=None,
        text_encoder_3=None,
        tokenizer_3=None,
    )
    return pipeline, {**_prompt(32, 64), **_prompt(32, 64, "negative_")}


def stable_diffusion() -> tuple[Any, dict[str, Any]]:
    """A Stable Diffusion pipeline with a UNet2DConditionModel of two levels."""
    import diffusers

    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=32,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=2,
        norm_num_groups=2,
    )
    pipeline = diffusers.StableDiffusionPipeline(
        vae=_decoder(latent_channels=4),
        text_encoder=None,
        tokenizer=None,
        unet=unet,
        scheduler=diffusers.DDIMScheduler(
            clip_sample=False, set_alpha_to_one=False, steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    embeddings = {"prompt_embeds": _noise(1, 5, 32), "negative_prompt_embeds": _noise(1, 5, 32)}
    return pipeline, embeddings


PIPELINES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "flux": flux,
    "stable diffusion 3": stable_diffusion_3,
    "stable diffusion": stable_diffusion,
}


def llama() -> Any:
    """A Llama of two layers with grouped keys."""
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=99,
            hidden_size=32,
            intermediate_size=37,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=None,
        )
    ).eval()


def text_encoders() -> dict[str, Any]:
    """The two kinds of text encoder that the pipelines use: CLIP and T5."""
    import transformers

    clip = transformers.CLIPTextConfig(
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        vocab_size=99,
        projection_dim=32,
    )
    t5 = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4
    )
    return {
        "clip": transformers.CLIPTextModelWithProjection(clip).eval(),
        "t5": transformers.T5EncoderModel(t5).eval(),
    }


def _decoder(**settings: Any) -> Any:
    import diffusers

    return diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(4, 8),
        norm_num_groups=2,
        sample_size=32,
        use_quant_conv=True,
        **settings,
    )


def _prompt(width: int, pooled: int, prefix: str = "") -> dict[str, torch.Tensor]:
    return {
        f"{prefix}prompt_embeds": _noise(1, 5, width),
        f"{prefix}pooled_prompt_embeds": _noise(1, pooled),
    }


def _noise(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)))
