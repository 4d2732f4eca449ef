"""The ways of an output to its reader, with real processes; and wrong bytes on each of them."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.bench import handoff, handoff_ways
from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.consumer import Consumer
from omni_platforms.bench.consuming import Job, read_pages
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forward import can_time_forwards
from omni_platforms.bench.handoff_ways import (
    ARENA,
    AT_HAND,
    BARE,
    COMMON,
    ENGINE,
    QUEUE,
    READ,
    Ways,
)
from omni_platforms.bench.segments import from_segment, room_for_segments, to_fresh_segment
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena, Packing
from omni_platforms.simulator import Simulation

ROOT = Path(__file__).resolve().parents[2]
SIZE = 1 << 20
HERE = torch.device("cpu")
NAMES = [
    BARE,
    handoff_ways.BLOCKING,
    COMMON,
    QUEUE,
    handoff_ways.ONE_PROCESS,
    ARENA,
    ENGINE,
]


def bench_of(rounds: int = 1) -> Bench:
    return Bench(CpuPlatform(), HERE, rounds, quick=True)


@pytest.fixture(scope="module")
def consumer() -> Iterator[tuple[Arena, Consumer]]:
    with (
        Arena(CpuPlatform(), cap=8 * SIZE, segment_bytes=8 * SIZE) as arena,
        Consumer(arena) as process,
    ):
        yield arena, process


@pytest.fixture(scope="module")
def make_ways(consumer: tuple[Arena, Consumer]) -> Iterator[Callable[[], Ways]]:
    arena, process = consumer
    bench = bench_of()
    with ExitStack() as stack:
        outputs = stack.enter_context(AsyncOutputExecutor(bench.platform))
        engine = stack.enter_context(handoff._engine(bench, 8 * SIZE))
        yield lambda: Ways(bench, SIZE, 0, process, arena, outputs, engine)


def segments_here() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("psm_")}


@pytest.mark.parametrize("name", NAMES)
def test_each_way_brings_the_right_bytes_and_two_times(
    make_ways: Callable[[], Ways], name: str
) -> None:
    before = segments_here()
    ways = make_ways().all()
    assert list(ways) == NAMES
    for _ in range(2):
        figures = ways[name]()
        assert 0 < figures[AT_HAND] < figures[READ] < 60
    assert segments_here() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_byte_is_seen_whatever_way_it_came(
    make_ways: Callable[[], Ways], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ways = make_ways()
    ways.all()[name]()
    if name == ENGINE:  # whose worker makes the bytes of another round
        send = ways._engine.execute_model

        def other(request: dict[str, int]) -> Any:
            return send({**request, "seed": request["seed"] - 1})

        monkeypatch.setattr(ways._engine, "execute_model", other)
    else:
        make = ways._producer.complete

        def spoilt(seed: int) -> tuple[torch.Tensor, float]:
            value, at = make(seed)
            value.view(torch.uint8)[-1] ^= 1
            return value, at

        monkeypatch.setattr(ways._producer, "complete", spoilt)
    wrong = rf"{re.escape(name)}: .* of {SIZE // 4} elements are wrong in round"
    with pytest.raises(BenchError, match=wrong):
        ways.all()[name]()
    monkeypatch.undo()
    ways.all()[name]()  # and the next round is well again


def test_rows_of_all_ways_come_with_both_figures(
    make_ways: Callable[[], Ways], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(rounds=2)
    rows = handoff._measure(bench, make_ways(), SIZE, 0)
    assert [row.way for row in rows] == NAMES * 2
    assert [row.case["part"] for row in rows] == [READ] * 7 + [AT_HAND] * 7
    bases = {row.way: row.base for row in rows}
    assert bases.pop(BARE) is None
    assert set(bases.values()) == {BARE}
    assert {row.met for row in rows} == {None}, "the CPU claims no target"


def test_where_segments_have_no_room_their_ways_are_left_out(
    make_ways: Callable[[], Ways], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that writes beyond /dev/shm's size would be killed."""
    monkeypatch.setattr(handoff, "room_for_segments", lambda: SIZE)
    bench = bench_of()
    rows = handoff._measure(bench, make_ways(), SIZE, 0)
    assert {COMMON, QUEUE} & {row.way for row in rows} == set()
    (warning,) = bench.warnings
    assert "/dev/shm has 1.05 MB" in warning


def test_targets_are_those_of_the_size() -> None:
    image, _, _, video = handoff.SIZES
    assert handoff._targets(image, True)[ARENA].value == 1.5
    assert handoff._targets(video, True)[ENGINE].value == 1.1
    assert handoff._targets(image, True)[COMMON].value == 20.0
    assert handoff._targets(video, True)[COMMON].base == ARENA
    assert COMMON not in handoff._targets(video, False)


def test_a_segment_brings_its_bytes_and_is_gone() -> None:
    before = segments_here()
    value = stamp(Pattern(SIZE).base_on(HERE), 5)
    name = to_fresh_segment(value)
    assert len(segments_here()) == len(before) + 1
    assert torch.equal(from_segment(name, SIZE), value)
    assert segments_here() == before
    assert (room_for_segments() or 0) > SIZE


def test_reading_touches_a_word_of_every_page() -> None:
    value = torch.zeros(SIZE // 4, dtype=torch.int32)
    read_pages(value)
    with pytest.raises(RuntimeError, match="view"):
        read_pages(value.reshape(2, -1).t())


def test_a_consumer_that_dies_is_an_error_and_no_wait() -> None:
    with Arena(CpuPlatform(), cap=SIZE, segment_bytes=SIZE) as arena, Consumer(arena) as process:
        pid = process._process.pid
        assert pid is not None

        def die() -> float:
            os.kill(pid, signal.SIGKILL)
            return 0.0

        with pytest.raises(BenchError, match=r"has ended .exit status -9."):
            process.take(Job("common", "a way", SIZE, 1), die)
        with pytest.raises(BenchError, match="has ended"):
            process.usage()


@pytest.mark.slow
def test_a_consumer_that_waits_for_an_output_in_vain_is_ended_at_once() -> None:
    """As when a way fails: it cannot hear of the end in a queue that nothing comes from."""
    with Arena(CpuPlatform(), cap=SIZE, segment_bytes=SIZE) as arena, Consumer(arena) as process:

        def fail() -> float:
            raise OSError("no device any more")

        with pytest.raises(OSError, match="no device"):
            process.take(Job("queue", "a way", SIZE, 1), fail)
        process.close()
        assert process._process.exitcode == -signal.SIGTERM


PARENT = """
import time
from omni_platforms.bench.consumer import Consumer
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.shm import Arena
if __name__ == "__main__":
    arena = Arena(CpuPlatform(), cap=1 << 20, segment_bytes=1 << 20)
    consumer = Consumer(arena)
    print(consumer._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_consumer_ends_with_whoever_measures(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        try:
            parent.kill()
            assert select.select([watch], [], [], 60)[0], "the consumer outlives its parent"
        finally:
            os.close(watch)


def test_a_cpu_has_no_forward_whose_end_is_known() -> None:
    assert not can_time_forwards(HERE)


def test_the_engine_is_the_product_as_it_is(make_ways: Callable[[], Ways]) -> None:
    ways = make_ways()
    assert type(ways._engine) is MultiprocExecutor
    figures: Mapping[str, float] = ways.all()[ENGINE]()
    assert set(figures) == {AT_HAND, READ}


# A simulated device, whose copies are as late as they can be ------------------

BEHIND = [BARE, handoff_ways.BLOCKING, COMMON, QUEUE, handoff_ways.ONE_PROCESS, ARENA]


@pytest.fixture
def behind_products(sim: Simulation) -> Iterator[Ways]:
    """All ways but the engine's, behind two products on a device that works only when it must."""
    sim.reset("lazy")
    platform, device = sim.platform, sim.platform.resolve_device()
    bench = Bench(platform, device, rounds=1, quick=True)
    with (
        Arena(platform, device, cap=8 * SIZE, segment_bytes=8 * SIZE) as arena,
        Consumer(arena) as process,
        AsyncOutputExecutor(platform, device) as outputs,
    ):
        yield Ways(bench, SIZE, 2, process, arena, outputs, mock.MagicMock())


@pytest.mark.slow
def test_outputs_behind_a_forward_are_waited_for(
    behind_products: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = behind_products.all()
    for _ in range(2):
        for name in BEHIND:
            figures = ways[name]()
            assert figures[AT_HAND] < figures[READ] < 60
    monkeypatch.setattr(Packing, "_await_device", lambda packing, timeout: True)
    monkeypatch.setattr(type(behind_products._platform), "synchronize_event", lambda *_: True)
    with pytest.raises(BenchError, match=rf"{ARENA}: .* elements are wrong"):
        ways[ARENA]()
    monkeypatch.undo()
    behind_products._platform.synchronize(behind_products._producer._device)
