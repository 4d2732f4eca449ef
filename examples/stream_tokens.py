"""Tokens of a language model, printed while the device computes the next ones.

    pip install 'omni-platforms[transformers]'
    python examples/stream_tokens.py --tokens 40

It builds a tiny Llama from a configuration, with random weights: nothing is downloaded, and it
prints ids. Name a folder with a checkpoint to see text: `--checkpoint /models/llama`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from omni_platforms import AsyncOutputExecutor, current_platform
from omni_platforms.integrations.transformers import stream_tokens


def tiny_llama() -> Any:
    """Return a Llama of two layers with random weights, always the same, on the host."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=256,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                initializer_range=0.2,  # or it would say the same id for ever
            )
        ).eval()


def load(checkpoint: str | None, prompt: str) -> tuple[Any, torch.Tensor, Any]:
    """Return a model, the ids of a prompt `[1, length]`, and a tokenizer where there is one."""
    if checkpoint is None:
        return tiny_llama(), torch.tensor([list(prompt.encode())]), None
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, local_files_only=True).eval()
    return model, tokenizer(prompt, return_tensors="pt").input_ids, tokenizer


def main() -> None:
    """Stream one answer to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", help="a folder that from_pretrained reads")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=40)
    options = parser.parse_args()

    device = current_platform().device(0)
    model, ids, tokenizer = load(options.checkpoint, options.prompt)
    stop_ids = () if tokenizer is None else (tokenizer.eos_token_id,)
    with AsyncOutputExecutor() as outputs:
        steps = stream_tokens(
            model.to(device),
            ids.to(device),
            outputs,
            max_new_tokens=options.tokens,
            stop_ids=stop_ids,
        )
        for (token,) in steps:
            text = f"{token} " if tokenizer is None else tokenizer.decode([token])
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
