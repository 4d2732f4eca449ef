"""Outputs in shared memory for an engine that is built like vLLM-Omni, in place of its own packing.

There, a worker calls `pack_diffusion_output_shm(output, d2h_stream=None)`, which puts handles of
new named segments in the place of large tensors, and the engine's process calls
`unpack_diffusion_output_shm(output)`, which copies them out. Here the device writes into memory
that both processes have mapped already, and the engine's tensors are views of it. Both change the
output in place and return it, as theirs do. docs/integrations.md shows the lines to change.

The interface is that of https://github.com/vllm-project/vllm-omni, in vllm_omni/diffusion/ipc.py at
commit 194e7f1aaf6847022d704b78763f190f258cd885. Run with a stand-in for it (`standin.py` beside
this file), not with the real package.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from omni_platforms.errors import ArenaFullError
from omni_platforms.shm import Arena, ArenaView, Packing

# What a DiffusionOutput has of tensors: those that the packing there looks at.
FIELDS = ("output", "trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")


@dataclass(frozen=True)
class Packed:
    """Stands in the first DiffusionOutput's `output` for the tensors of a whole message."""

    rank: int
    packet: bytes


class Packer:
    """The worker's side. `channel` is one end of `multiprocessing.Pipe()`, used for nothing else.

    Further arguments are those of `Arena`. Making one blocks for about 0.4 ms a megabyte of the
    arena: before the first request. Any thread may pack.
    """

    def __init__(self, channel: Connection, rank: int = 0, **arena: Any) -> None:
        self.arena = Arena(**arena)
        self.arena.connect(channel)
        self._rank = rank

    def pack(
        self, output: Any, d2h_stream: torch.Stream | None = None, timeout: float = 600.0
    ) -> Any:
        """Take the tensors out of `output` into shared memory; return it.

        The copies come after what is enqueued on `d2h_stream`, or on the calling thread's current
        stream. Blocks until the device has written them and, where the arena is full, until the
        engine has let others go; `timeout` seconds each. Raises as `Arena.start` and `Packing.wait`
        do, and then `output` is as it was and no block stays in use.
        """
        found = list(diffusion_outputs(output))
        nests = [tuple(getattr(each, name) for name in FIELDS) for each in found]
        if all(value is None for nest in nests for value in nest):
            return output  # an error, or a rank that has nothing
        platform = self.arena.platform
        with nullcontext() if d2h_stream is None else platform.stream_context(d2h_stream):
            packing = self._start(nests, time.monotonic() + timeout)
        try:
            packet = packing.wait(timeout)
        finally:
            packing.drop()  # does nothing once there is a packet
        for each in found:
            for name in FIELDS:
                setattr(each, name, None)
        found[0].output = Packed(self._rank, bytes(packet))
        return output

    def _start(self, nests: Any, deadline: float) -> Packing:
        while True:
            try:
                return self.arena.start(nests)
            except ArenaFullError as full:
                left = deadline - time.monotonic()
                if full.never_fits or left <= 0 or not self.arena.wait_for_returns(left):
                    raise


class Unpacker:
    """The engine's side, for all its workers."""

    def __init__(self) -> None:
        self._views: dict[int, ArenaView] = {}

    def connect(self, rank: int, channel: Connection) -> None:
        """Map a worker's arena. Blocks until its `Packer` has connected the other end."""
        self._views[rank] = ArenaView.connect(channel)

    def unpack(self, output: Any) -> Any:
        """Put the tensors back into `output`, without a copy; return it. Does not block.

        Unpack each output that was packed, also one that nobody wants: its memory is free for the
        worker when its tensors are gone. What was not packed is left as it is. Raises as
        `ArenaView.unpack`.
        """
        found = list(diffusion_outputs(output))
        packed = found[0].output if found else None
        if isinstance(packed, Packed):
            nests = self._views[packed.rank].unpack(packed.packet)
            for each, nest in zip(found, nests, strict=True):
                for name, value in zip(FIELDS, nest, strict=True):
                    setattr(each, name, value)
        return output


def diffusion_outputs(output: Any) -> Iterator[Any]:
    """Yield every DiffusionOutput in a worker's message, in the shapes that messages have there.

    Itself; `result` of a runner's output; `["result"]` of an RPC's envelope; `["output"]` beside a
    "dp_rank"; and those of each of a batch's `runner_outputs`.
    """
    if all(hasattr(output, name) for name in FIELDS):
        yield output
    elif isinstance(output, dict):
        inside = output.get("output") if "dp_rank" in output else output.get("result")
        if inside is not None and not isinstance(inside, dict):
            yield from diffusion_outputs(inside)
    else:
        for each in (
            getattr(output, "result", None),
            *(getattr(output, "runner_outputs", None) or ()),
        ):
            if each is not None:
                yield from diffusion_outputs(each)
