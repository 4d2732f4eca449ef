"""The packing for engines built like vLLM-Omni, against a stand-in for its interface."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms import ArenaFullError, UnsupportedOutputError
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.simulator import Simulation
from tests.simulated import NAME

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vllm_omni"
PATIENCE = 60.0
MB = 1 << 20

sys.path.insert(0, str(EXAMPLE))
import standin  # noqa: E402
from packing import Packed, Packer, Unpacker  # noqa: E402
from standin import BatchRunnerOutput, DiffusionOutput, RunnerOutput  # noqa: E402

sys.path.remove(str(EXAMPLE))


@contextmanager
def connected(platform: OmniPlatform, **arena: Any) -> Iterator[tuple[Packer, Unpacker]]:
    """Both sides in one process."""
    here, there = multiprocessing.Pipe()
    with here, there:
        arena = {"initial_bytes": 4 * MB, "segment_bytes": 4 * MB, **arena}
        packer, unpacker = Packer(there, 3, platform=platform, **arena), Unpacker()
        unpacker.connect(3, here)
        try:
            yield packer, unpacker
        finally:
            packer.arena.close()


@pytest.fixture
def sides() -> Iterator[tuple[Packer, Unpacker]]:
    with connected(CpuPlatform()) as made:
        yield made


def output_of(seed: int) -> DiffusionOutput:
    generator = torch.Generator().manual_seed(seed)
    video = torch.randn(2, 3, 64, 64, generator=generator).bfloat16()
    return DiffusionOutput(
        output=(video, {"audio": torch.randn(20_000, generator=generator)}),
        trajectory_latents=torch.randn(4, 8, generator=generator),
    )


def same(got: DiffusionOutput, seed: int) -> bool:
    want = output_of(seed)
    assert isinstance(got.output, tuple)
    assert got.trajectory_timesteps is None
    return (
        torch.equal(got.output[0].view(torch.int16), want.output[0].view(torch.int16))
        and got.output[0].dtype == torch.bfloat16
        and torch.equal(got.output[1]["audio"], want.output[1]["audio"])
        and torch.equal(got.trajectory_latents, want.trajectory_latents)
    )


MESSAGES = {
    "bare": lambda made: made,
    "runner": lambda made: RunnerOutput("a", made),
    "envelope": lambda made: {"type": "diffusion_rpc_result", "result": made},
    "data parallel": lambda made: {"dp_rank": 1, "output": made},
    "batch": lambda made: BatchRunnerOutput([RunnerOutput("a", made), RunnerOutput("b")]),
}


@pytest.mark.parametrize("shape", MESSAGES)
def test_every_shape_of_a_message_is_packed_in_place(
    sides: tuple[Packer, Unpacker], shape: str
) -> None:
    packer, unpacker = sides
    made = output_of(1)
    message = MESSAGES[shape](made)
    assert packer.pack(message) is message
    assert isinstance(made.output, Packed)
    assert made.trajectory_latents is None
    assert unpacker.unpack(message) is message
    assert same(made, 1)


def test_a_batch_is_one_packet_and_its_outputs_are_freed_one_by_one(
    sides: tuple[Packer, Unpacker],
) -> None:
    packer, unpacker = sides
    message = BatchRunnerOutput([RunnerOutput(str(seed), output_of(seed)) for seed in range(3)])
    unpacker.unpack(packer.pack(message))
    assert [same(each.result, seed) for seed, each in enumerate(message.runner_outputs)] == [
        True
    ] * 3
    used = packer.arena.stats().used_bytes
    first = message.runner_outputs.pop(0)
    del first
    packer.arena.wait_for_returns(PATIENCE)
    packer.pack(DiffusionOutput(output=torch.zeros(2)))  # which takes in what came back
    assert 0 < packer.arena.stats().used_bytes < used


@pytest.mark.parametrize("message", [DiffusionOutput(error="no such model"), {"status": "error"}])
def test_what_has_no_tensors_is_left_alone(sides: tuple[Packer, Unpacker], message: Any) -> None:
    packer, unpacker = sides
    assert unpacker.unpack(packer.pack(message)) is message
    assert packer.arena.stats().used_bytes == 0
    assert message in (DiffusionOutput(error="no such model"), {"status": "error"})


def test_an_output_that_cannot_be_packed_is_as_it_was(sides: tuple[Packer, Unpacker]) -> None:
    packer, _ = sides
    good, bad = output_of(1), DiffusionOutput(output=lambda: None)
    with pytest.raises(UnsupportedOutputError):
        packer.pack(BatchRunnerOutput([RunnerOutput("a", good), RunnerOutput("b", bad)]))
    assert same(good, 1)
    assert packer.arena.stats().used_bytes == 0


def test_a_full_arena_waits_for_the_engine_and_no_longer_than_it_may() -> None:
    with connected(CpuPlatform(), cap=4 * MB) as (packer, unpacker):
        kept = unpacker.unpack(packer.pack(DiffusionOutput(output=torch.ones(3 * MB // 4))))
        late = DiffusionOutput(output=torch.ones(3 * MB // 4))
        with pytest.raises(ArenaFullError):
            packer.pack(late, timeout=0.05)
        assert isinstance(late.output, torch.Tensor)

        thread = threading.Thread(target=packer.pack, args=(late,))
        thread.start()
        kept.output = None
        thread.join(PATIENCE)
        assert isinstance(late.output, Packed)
        unpacker.unpack(late)


def on_its_own_streams(sim: Simulation, wait: bool = True) -> None:
    """As a worker there: the forward on one stream, the packing on another."""
    platform = sim.platform
    forward, d2h_stream = platform.create_side_stream(), platform.create_side_stream()
    small = {"initial_bytes": MB // 8, "segment_bytes": MB // 8}
    with connected(platform, **small) as (packer, unpacker):
        for seed in range(2):
            with platform.stream_context(forward):
                image = torch.full((9000,), float(seed), device=NAME) * 2
            if wait:
                event = platform.record_device_event(forward)
                platform.stream_wait_event(d2h_stream, event)
            made = DiffusionOutput(output=image)
            del image
            unpacker.unpack(packer.pack(made, d2h_stream))
            assert made.output.device.type == "cpu"
            assert made.output.eq(2.0 * seed).all(), "CORRUPT"


def test_the_copies_follow_the_stream_of_the_packing(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sim.explore(lambda: on_its_own_streams(sim))
    assert found.ok, str(found)
    assert not sim.explore(lambda: on_its_own_streams(sim, wait=False)).ok
    # The bug: packing that does not look at the stream it is given.
    pack = Packer.pack
    monkeypatch.setattr(Packer, "pack", lambda self, output, _: pack(self, output))
    assert not sim.explore(lambda: on_its_own_streams(sim)).ok


def test_an_engine_of_two_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    monkeypatch.syspath_prepend(str(EXAMPLE))  # which the worker's process takes over
    standin.main()
    lines = capsys.readouterr().out.splitlines()
    shape = "(3, 512, 512) torch.bfloat16"
    assert lines == [
        *(f"picture-{seed}: {shape}, {seed / 2}" for seed in range(3)),
        f"batch: {shape}, 3.5",
        f"batch: {shape}, 4.0",
    ]
