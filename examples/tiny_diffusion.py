"""A worker class with everything that one can have, and a script that runs it in a process.

    python examples/tiny_diffusion.py

It needs no accelerator: a small random model "denoises" pictures on whatever platform is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import torch

from omni_platforms import MultiprocExecutor, Preview


class Worker:
    """One process and one device of the engine."""

    def __init__(self, rank: int, device: torch.device, config: dict[str, Any]) -> None:
        """Load the model. The device is the process's current one already."""
        self.device = device
        self.side = config["side"]
        torch.manual_seed(config.get("seed", 0))
        self.model = torch.nn.Conv2d(3, 3, 3, padding=1).eval().to(device)

    @torch.inference_mode()
    def execute_model(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compute one request. Returns device tensors: the engine takes them off the device."""
        image = self._noise(1)
        for _ in range(request["steps"]):
            image = self.model(image)
        return {"image": image[0], "prompt": request["prompt"]}

    @torch.inference_mode()
    def execute_model_batch(self, requests: dict[str, Any]) -> dict[str, Any]:
        """Compute several requests as one forward, each with an output of its own."""
        images = self.model(self._noise(len(requests)))
        return {name: {"image": image} for name, image in zip(requests, images, strict=True)}

    @torch.inference_mode()
    def execute_stepwise(self, request: dict[str, Any]) -> Iterator[torch.Tensor]:
        """Compute step by step. What is yielded is a preview, what is returned is the output."""
        image = self._noise(1)
        for _ in range(request["steps"]):
            image = self.model(image)
            yield image[0, :, ::4, ::4]
        return {"image": image[0], "prompt": request["prompt"]}

    def set_seed(self, seed: int) -> int:
        """Do anything else that `collective_rpc` asks for."""
        torch.manual_seed(seed)
        return seed

    def sleep(self) -> None:
        """Give the device's memory away; no copy reads it any more when this is called."""
        self.model.to("cpu")

    def wake_up(self) -> None:
        """Take it back."""
        self.model.to(self.device)

    def _noise(self, count: int) -> torch.Tensor:
        return torch.rand(count, 3, self.side, self.side, device=self.device)


async def stream(executor: MultiprocExecutor) -> None:
    """Show what comes of one request, step by step."""
    async for item in executor.stream({"prompt": "a dog", "steps": 8}):
        if isinstance(item, Preview):
            print(f"step {item.step}: a preview of {tuple(item.value.shape)}")
        else:
            print(f"{item.value['prompt']}: {tuple(item.value['image'].shape)}")


def main() -> None:
    """Run a few requests in every way that there is."""
    config = {"side": 256}
    with MultiprocExecutor(f"{__file__}:Worker", num_workers=1, config=config) as executor:
        done = executor.execute_model({"prompt": "a cat", "steps": 4})  # returns at COMPUTE_DONE
        image = executor.wait_output_ready(done.async_output_id).result()["image"]
        print(f"a cat: {tuple(image.shape)}, on {executor.workers[0].device}")

        batch = executor.execute_model_batch({"left": {}, "right": {}})
        for name, handle in batch.items():
            output = executor.wait_output_ready(handle.async_output_id).result()
            print(f"{name}: {tuple(output['image'].shape)}")

        print("seeds:", executor.collective_rpc("set_seed", args=(7,), timeout=30.0))
        executor.sleep()
        executor.wake_up()
        asyncio.run(stream(executor))


if __name__ == "__main__":
    main()
