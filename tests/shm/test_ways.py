"""The ways of the bytes on a simulated accelerator: all give the same, at different cost."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import (
    ArenaFullError,
    CaptureError,
    DrainTimeoutError,
    HostRegistrationError,
    OutputTimeoutError,
    SimulatedCaptureError,
)
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import Arena, Packet, closing, layout
from omni_platforms.shm.packing import Retired
from omni_platforms.simulator import Simulation
from tests.outputs.test_nest import DTYPES, LAYOUTS, bits, make_tensor
from tests.shm.conftest import connected
from tests.shm.test_races import N, made, nothing


class Bare(OmniPlatform):
    """Nothing but the base class: no streams, events, pinned or registered memory."""

    name = "bare"
    device_type = "sim"


WAYS = ["registered", "staged", "unpinned", "bare"]


def platform_of(sim: Simulation, way: str, monkeypatch: pytest.MonkeyPatch) -> OmniPlatform:
    kind = type(sim.platform)
    if way != "registered":
        monkeypatch.setattr(kind, "register_host_memory", nothing)
    if way == "unpinned":
        monkeypatch.setattr(kind, "pinned_empty", nothing)
    return Bare() if way == "bare" else sim.platform


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inline_bytes", [1 << 14, 0], ids=["inline", "blocks"])
def test_all_ways_give_the_same_bits(
    sim: Simulation, way: str, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.reset("lazy")
    monkeypatch.setattr(layout, "INLINE_BYTES", inline_bytes)
    with connected(platform_of(sim, way, monkeypatch)) as (arena, view):
        for name in LAYOUTS:
            leaves = [make_tensor(dtype, name, 3, "sim") for dtype in DTYPES]
            for leaf, dtype in zip(view.unpack(arena.pack(leaves)), DTYPES, strict=True):
                assert leaf.device.type == "cpu"
                assert bits(leaf) == bits(make_tensor(dtype, name, 3)), (name, dtype)
                assert leaf.untyped_storage().nbytes() == leaf.nbytes


@pytest.mark.parametrize("way", WAYS)
def test_which_way_makes_the_host_wait(
    sim: Simulation, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = platform_of(sim, way, monkeypatch)
    with connected(platform) as (arena, view):
        image = made(1.0)
        before = sim.host_waits_of()
        packing = arena.start([image, image.reshape(90, 100).t(), image[::2], image[:3]])
        assert (sim.host_waits_of() == before) == (way in ("registered", "staged"))
        assert arena.stats().registered == (way == "registered")
        got = view.unpack(packing.wait(10))
        assert got[1].stride() == (1, 100)
        assert all(leaf.eq(2.0).all() for leaf in got)


def test_a_copy_is_cut_where_two_registrations_meet(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = type(sim.platform).register_host_memory

    def small_only(self: Any, buffer: Any) -> Any:
        if buffer.numel() > 64 << 10:
            raise HostRegistrationError("64 KiB at most")
        return register(self, buffer)

    monkeypatch.setattr(type(sim.platform), "register_host_memory", small_only)
    monkeypatch.setattr("omni_platforms.shm.registered.SMALLEST_PIECE", 64 << 10)
    sim.reset("lazy")
    with connected(sim.platform) as (arena, view):
        assert arena.stats().registered
        source = torch.arange(100_000.0, device="sim")
        before = sim.host_waits_of()
        packing = arena.start(source)
        assert sim.host_waits_of() == before
        assert torch.equal(view.unpack(packing.wait(10)), torch.arange(100_000.0))


def test_no_pinned_memory_left_is_a_slower_copy(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("no more memory can be pinned")

    monkeypatch.setattr(type(sim.platform), "register_host_memory", nothing)
    monkeypatch.setattr(type(sim.platform), "pinned_empty", refuse)
    with connected(sim.platform) as (arena, view):
        assert view.unpack(arena.pack(made(1.0))).eq(2).all()
    assert "no pinned memory" in caplog.text


def test_a_tensor_of_another_device_arrives(sim: Simulation) -> None:
    sim.reset("lazy")
    with connected(sim.platform, device=1) as (arena, view):
        here = torch.full((N,), 5.0, device="sim:1") * 2
        there = torch.full((N,), 6.0, device="sim:0") * 2
        got = view.unpack(arena.pack([here, there, torch.ones(N)]))
        assert [leaf[0].item() for leaf in got] == [10.0, 12.0, 1.0]
        assert torch.accelerator.current_device_index() == 0


class Holder:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


def test_no_device_tensor_crosses_wherever_it_is(sim: Simulation) -> None:
    with connected(sim.platform) as (arena, view):
        deep = {"deep": Holder(made(1.0)[:3])}
        got = view.unpack(arena.pack(Holder([Holder(made(1.0)), deep])))
        assert got.inside[0].inside.device.type == "cpu"
        assert got.inside[1]["deep"].inside.tolist() == [2.0] * 3


def test_a_device_storage_is_refused(sim: Simulation) -> None:
    with connected(sim.platform) as (arena, _), pytest.raises(TypeError, match="storage on sim:0"):
        arena.pack([made(1.0), made(1.0).untyped_storage()])


def test_device_tensors_live_until_they_are_read_and_no_longer(sim: Simulation) -> None:
    sim.reset("lazy")
    with connected(sim.platform) as (arena, _):
        image = made(1.0)
        alive = weakref.ref(image)
        packing = arena.start({"image": image})
        del image
        assert alive() is not None
        packing.wait(10)
        gc.collect()
        assert alive() is None


def test_a_dropped_block_comes_back_when_the_device_has_finished(sim: Simulation) -> None:
    sim.reset("lazy")
    with connected(sim.platform, cap=1 << 20) as (arena, _):
        packing = arena.start(torch.zeros(200_000, device="sim") + 1)
        packing.drop()
        assert arena.stats().retired == 1
        with pytest.raises(ArenaFullError):
            arena.start(torch.ones(200_000))
        torch.accelerator.synchronize()
        arena.start(torch.ones(200_000)).drop()
        assert arena.stats().retired == 0


def test_a_timeout_keeps_the_output_and_its_block(sim: Simulation) -> None:
    sim.reset("lazy")
    with connected(sim.platform) as (arena, view):
        packing = arena.start(made(1.0))
        with pytest.raises(OutputTimeoutError, match="36000 bytes"):
            packing.wait(0)
        assert view.unpack(packing.wait(10)).eq(2).all()
        with mock.patch.object(type(sim.platform), "synchronize_event", return_value=False):
            with pytest.raises(OutputTimeoutError):
                arena.pack(made(2.0), timeout=0.01)
            arena.start(made(3.0))
            with pytest.raises(DrainTimeoutError, match="keeps it"):
                arena.close(0.01)
        arena.close()


def test_a_block_of_a_failed_device_is_never_used_again(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    sim.reset("lazy")
    with connected(sim.platform, cap=1 << 20) as (arena, _):
        arena.start(torch.zeros(200_000, device="sim") + 1).drop()
        with mock.patch.object(Retired, "is_written", side_effect=RuntimeError("device lost")):
            for _ in range(2):
                with pytest.raises(ArenaFullError):
                    arena.start(torch.ones(200_000))
        assert "device lost" in caplog.text


def test_an_arena_on_a_device_that_lost_its_events_waits_for_the_device(sim: Simulation) -> None:
    sim.reset("lazy")
    lost = RuntimeError("no such event")
    with connected(sim.platform) as (arena, _):
        arena.start(made(1.0)).drop()
        with mock.patch.object(type(sim.platform), "synchronize_event", side_effect=lost):
            arena.close()
        assert not sim.runtime.pinned.registered()


def test_memory_of_a_lost_device_is_kept(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    sim.reset("lazy")
    lost, kind = RuntimeError("device lost"), type(sim.platform)
    arena = Arena(sim.platform, cap=1 << 20, segment_bytes=1 << 20)
    arena.start(made(1.0)).drop()
    with (
        mock.patch.object(closing, "_kept", []) as kept,
        mock.patch.object(kind, "synchronize_event", side_effect=lost),
        mock.patch.object(kind, "synchronize", side_effect=lost),
    ):
        del arena
        assert "device lost" in caplog.text
        assert sim.runtime.pinned.registered()
    torch.accelerator.synchronize()
    kept.pop().release()


@pytest.mark.parametrize("fault", ["on another device", "refused"])
def test_a_faulty_side_stream_is_not_used(
    sim: Simulation, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    sim.reset("lazy")
    wrong = {"return_value": torch.Stream(device="sim:1")}
    if fault == "refused":
        wrong = {"side_effect": RuntimeError("planted")}
    with (
        mock.patch.object(type(sim.platform), "create_side_stream", **wrong),
        connected(sim.platform) as (arena, view),
    ):
        image = made(1.0)
        packing = arena.start(image)
        image.fill_(9.0)
        assert view.unpack(packing.wait(10)).eq(2).all()
    assert "blocking calls" in caplog.text


def test_no_hand_over_inside_a_capture(sim: Simulation) -> None:
    with connected(sim.platform) as (arena, _):
        image = made(1.0)
        graph = torch.accelerator.Graph()
        with torch.Stream(device="sim"), graph, pytest.raises(CaptureError):
            arena.start(image)
        assert arena.stats().used_bytes == 0


def test_a_capture_of_others_is_left_alone(sim: Simulation) -> None:
    """No allocation, registration or question to the device while somebody captures."""
    sim.reset("lazy")
    with connected(sim.platform, cap=4 << 20) as (arena, view):
        arena.start(made(1.0)).drop()
        graph, static = torch.accelerator.Graph(), torch.zeros(N, device="sim")
        large = torch.full((1 << 19,), 3.0, device="sim")
        packed: list[Packet] = []
        other = threading.Thread(target=lambda: packed.append(arena.pack(large)))
        with arena.capture_guard(), torch.Stream(device="sim"), graph:
            other.start()
            static.add_(1)
            assert arena.stats().retired == 1, "it cannot be asked for now"
            with pytest.raises(CaptureError, match="holds capture_guard"):
                arena.reserve(2 << 20)
            assert other.is_alive()
            assert not packed
        other.join(10)
        assert view.unpack(packed[0]).eq(3).all()
        assert arena.stats().retired == 0


def test_without_the_guard_a_capture_of_others_breaks(sim: Simulation) -> None:
    with connected(sim.platform, cap=4 << 20) as (arena, _):
        graph, broken = torch.accelerator.Graph(), []

        def grow() -> None:
            try:
                arena.reserve(2 << 20)
            except SimulatedCaptureError as error:
                broken.append(str(error))

        other = threading.Thread(target=grow)
        with contextlib.suppress(SimulatedCaptureError), torch.Stream(device="sim"), graph:
            other.start()
            other.join(10)
        assert broken


def test_an_arena_may_be_the_first_that_touches_a_device() -> None:
    """torch calls no memory pinned before it has initialized the device."""
    program = (
        "from omni_platforms import current_platform\n"
        "from omni_platforms.shm import Arena\n"
        "with Arena(current_platform(), segment_bytes=1 << 20) as arena:\n"
        "    print(arena.stats().registered, arena.stats().reason)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"OMNI_SIMULATE": "sim", "OMNI_PLATFORM": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "True", run.stdout + run.stderr
