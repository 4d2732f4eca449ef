"""Ranges stand around what executors do, on the threads that do it, in torch's profiler."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor
from omni_platforms.observe import ranges
from omni_platforms.observe.ranges import Ranges
from omni_platforms.platform.cpu import CpuPlatform
from tests.observe.listener import listening

PATIENCE = 30.0


def profiled(outputs: AsyncOutputExecutor, device: Any = "cpu") -> dict[str, int]:
    """How often each of our ranges is in a profile of three outputs."""
    tensor = torch.ones(100_000, device=device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            outputs.submit(tensor, on_host=lambda value: value).result(PATIENCE)
    return {e.key: e.count for e in profile.key_averages() if e.key.startswith("omni.")}


def test_torchs_profiler_shows_them() -> None:
    with listening(Ranges()), AsyncOutputExecutor(CpuPlatform()) as outputs:
        found = profiled(outputs)
    assert found.items() >= {"omni.submit": 3, "omni.result": 3}.items()


def test_nobody_asked_and_there_are_none() -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        assert profiled(outputs) == {}


def test_the_range_is_the_platforms() -> None:
    begun: list[str] = []

    class Platform(CpuPlatform):
        @contextlib.contextmanager
        def profiler_range(self, name: str) -> Iterator[None]:
            begun.append(name)
            yield

    ours = Ranges()
    platform = Platform()
    ours._platform = platform
    with listening(ours), AsyncOutputExecutor(platform) as outputs:
        outputs.submit(torch.ones(1), on_host=lambda value: value).result(PATIENCE)
    assert sorted(begun) == ["omni.on_host", "omni.result", "omni.submit"]


def test_the_first_executor_gives_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.SimpleNamespace(kind="outputs", thing=types.SimpleNamespace(platform="its"))
    monkeypatch.setattr(ranges.observers, "live", lambda: [made])
    assert ranges._platform_of_an_executor() == "its"
    arena = types.SimpleNamespace(platform="the worker's")
    made = types.SimpleNamespace(kind="worker", thing=types.SimpleNamespace(arena=arena))
    monkeypatch.setattr(ranges.observers, "live", lambda: [made])
    assert ranges._platform_of_an_executor() == "the worker's"
    monkeypatch.setattr(ranges.observers, "live", list)
    assert ranges._platform_of_an_executor() is None
    assert isinstance(Ranges().step("receive OUTPUT_READY", ""), torch.profiler.record_function)


def test_cuda_puts_an_nvtx_range_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from omni_platforms_cuda import platform as cuda

    said: list[str] = []
    nvtx = types.SimpleNamespace(
        range_push=lambda name: said.append(f"push {name}"), range_pop=lambda: said.append("pop")
    )
    monkeypatch.setattr(cuda.torch.cuda, "nvtx", nvtx)
    monkeypatch.setitem(sys.modules, "torch.cuda.nvtx", nvtx)  # type: ignore[arg-type]
    with cuda.CudaPlatform().profiler_range("omni.forward"):
        said.append("forward")
    assert said == ["push omni.forward", "forward", "pop"]
    with pytest.raises(ValueError, match="no"), cuda.CudaPlatform().profiler_range("a"):
        raise ValueError("no")
    assert said[-1] == "pop"
