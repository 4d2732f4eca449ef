"""A minimal engine whose processes and messages have the shape of vLLM-Omni's, with our packing.

    python examples/vllm_omni/standin.py

It is no copy and does nothing else of what vLLM-Omni does: one worker, requests that ask for a
picture, results over a queue. Names follow https://github.com/vllm-project/vllm-omni:

- vllm_omni/diffusion/worker/diffusion_worker.py at 0027c20aacc383514294532c999ffb1cad9cff7d:
  `WorkerProc` with `worker_main`, `_return_result`, `_async_output_loop`;
- vllm_omni/diffusion/executor/multiproc_executor.py at 00e623e2379163679311d5fd33e4c29ff0289795:
  `_launch_workers`, `_result_pump`.

The lines that our packing needs are marked with `# new`.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import queue
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from packing import Packer, Unpacker

from omni_platforms import current_platform


@dataclass
class DiffusionOutput:
    """What a forward gives: tensors on the device, or nests of them, or an error."""

    output: Any = None
    trajectory_latents: torch.Tensor | None = None
    trajectory_timesteps: torch.Tensor | None = None
    trajectory_log_probs: torch.Tensor | None = None
    error: str | None = None


@dataclass
class RunnerOutput:
    """The output of one request of a batch."""

    request_id: str
    result: DiffusionOutput | None = None


@dataclass
class BatchRunnerOutput:
    """The outputs of a batch, in one message."""

    runner_outputs: list[RunnerOutput]


class WorkerProc:
    """The worker's process: a main loop that computes, and a thread that hands outputs over."""

    def __init__(self, rank: int, results: Any, arena_end: Connection) -> None:
        self.platform = current_platform()
        self.device = self.platform.device(rank)
        self.results = results
        self.packer = Packer(arena_end, rank, initial_bytes=64 << 20)  # new
        self._outputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._async_output_loop)
        self._thread.start()

    @staticmethod
    def worker_main(rank: int, requests: Any, results: Any, arena_end: Connection) -> None:
        """Serve requests until one is `None`."""
        worker = WorkerProc(rank, results, arena_end)
        while (request := requests.get()) is not None:
            worker._return_result(request["id"], worker.execute_model(request))
        worker._outputs.put(None)
        worker._thread.join()

    def execute_model(self, request: dict[str, Any]) -> Any:
        """Compute: a picture and its latents, several for "batch", an error for "fail"."""
        if request.get("fail"):
            return DiffusionOutput(error="no such model")
        made = [self._forward(seed) for seed in request["seeds"]]
        if not request.get("batch"):
            return made[0]
        return BatchRunnerOutput([RunnerOutput(str(n), each) for n, each in enumerate(made)])

    def _forward(self, seed: int) -> DiffusionOutput:
        image = torch.full((3, 512, 512), float(seed), dtype=torch.bfloat16, device=self.device)
        latents = torch.full((4, 64, 64), seed + 0.5, device=self.device)
        return DiffusionOutput(output={"image": image / 2}, trajectory_latents=latents)

    def _return_result(self, output_id: str, output: Any) -> None:
        """Hand over: the next forward need not wait."""
        self._outputs.put((output_id, output, self.platform.record_device_event()))

    def _async_output_loop(self) -> None:
        d2h_stream = self.platform.create_side_stream(self.device)
        while (item := self._outputs.get()) is not None:
            output_id, output, event = item
            del item
            if d2h_stream is not None and event is not None:
                self.platform.stream_wait_event(d2h_stream, event)
            try:
                self.packer.pack(output, d2h_stream)  # new: was pack_diffusion_output_shm
            except Exception as error:  # noqa: BLE001  it is this output's
                output = DiffusionOutput(error=f"{type(error).__name__}: {error}")
            self.results.put((output_id, output))
            del output


class MultiprocDiffusionExecutor:
    """The engine's process: one worker, and a thread that reads its results."""

    def __init__(self) -> None:
        self._futures: dict[str, concurrent.futures.Future[Any]] = {}
        self._launch_workers()
        self._pump = threading.Thread(target=self._result_pump)
        self._pump.start()

    def _launch_workers(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._requests, self._results = context.Queue(), context.Queue()
        here, there = context.Pipe()  # new
        self._process = context.Process(
            target=WorkerProc.worker_main,
            args=(0, self._requests, self._results, there),  # new: the last one
        )
        self._process.start()
        there.close()  # new
        self._unpacker = Unpacker()  # new
        self._unpacker.connect(0, here)  # new

    def submit(self, request: dict[str, Any]) -> concurrent.futures.Future[Any]:
        """Queue a request; return the future of its output."""
        future = self._futures[request["id"]] = concurrent.futures.Future()
        self._requests.put(request)
        return future

    def _result_pump(self) -> None:
        while (message := self._results.get()) is not None:
            output_id, output = message
            future = self._futures.pop(output_id)
            try:
                future.set_result(self._unpacker.unpack(output))  # new: was unpack_diffusion_...
            except Exception as error:  # noqa: BLE001  it is this output's
                future.set_exception(error)
            del message, output, future

    def shutdown(self) -> None:
        """End the worker, then the pump."""
        self._requests.put(None)
        self._process.join()
        self._results.put(None)
        self._pump.join()


def main() -> None:
    """Ask for three pictures, and for a batch."""
    engine = MultiprocDiffusionExecutor()
    try:
        requests: list[dict[str, Any]] = [{"id": f"picture-{n}", "seeds": [n]} for n in range(3)]
        requests.append({"id": "batch", "seeds": [7, 8], "batch": True})
        futures = {request["id"]: engine.submit(request) for request in requests}
        for name, future in futures.items():
            made = future.result(timeout=60)
            results = [each.result for each in getattr(made, "runner_outputs", ())] or [made]
            for result in results:
                image = result.output["image"]
                print(f"{name}: {tuple(image.shape)} {image.dtype}, {image[0, 0, 0].item()}")
    finally:
        engine.shutdown()


if __name__ == "__main__":
    main()
