"""Capturing graphs and replaying them: static buffers, memory, branches, random numbers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator import Simulation
from tests.simulated import needs_graphs

pytestmark = needs_graphs

D = "sim"
acc = torch.accelerator


def capture(work: Callable[[], torch.Tensor], **kwargs: object) -> tuple[object, torch.Tensor]:
    """Capture `work` on a stream of its own; return the graph and its static output."""
    graph = acc.Graph(**kwargs)
    with torch.Stream(device=D), graph:
        output = work()
    return graph, output


def test_work_is_recorded_and_runs_at_each_replay(sim: Simulation) -> None:
    source = torch.ones(4, device=D)
    graph, output = capture(lambda: source * 2 + 1)
    assert output.isnan().all().item()  # nothing ran yet
    address = output.data_ptr()
    for value in (1.0, 5.0):
        source.fill_(value)
        graph.replay()
        assert output.cpu().tolist() == [2 * value + 1] * 4
    assert output.data_ptr() == address


def test_a_replay_is_enqueued_on_the_current_stream(sim: Simulation) -> None:
    sim.reset("lazy")
    source = torch.ones(4, device=D)
    graph, output = capture(lambda: source + 1)
    waits, side = sim.host_waits, torch.Stream(device=D)
    with side:
        graph.replay()
        done = side.record_event()
    assert sim.host_waits == waits
    assert not done.query()
    acc.current_stream().wait_event(done)
    assert output.cpu().tolist() == [2.0] * 4


def test_who_is_capturing(sim: Simulation) -> None:
    module, platform = sim.module, sim.platform
    graph, stream = acc.Graph(), torch.Stream(device=D)
    with stream, graph:
        assert module.is_current_stream_capturing()
        assert platform.is_capturing()
        assert platform.is_capturing(D)
        assert not platform.is_capturing(1)
        with torch.Stream(device=D):
            assert not platform.is_capturing()
        thread = threading.Thread(target=lambda: found.append(platform.is_capturing()))
        found: list[bool] = []
        thread.start()
        thread.join()
    assert found == [False]
    assert not platform.is_capturing()
    assert not module.is_current_stream_capturing()


def test_the_module_has_graphs_in_the_shape_of_vendors(sim: Simulation) -> None:
    module = sim.module
    source = torch.ones(4, device=f"{D}:1")
    graph, before = module.Graph(), acc.current_stream(1)
    with acc.device_index(1), module.graph(graph, pool=module.graph_pool_handle()):
        output = source + 1
    assert acc.current_device_index() == 0
    assert acc.current_stream(1) == before
    with acc.device_index(1):
        graph.replay()
    assert output.cpu().tolist() == [2.0] * 4
    graph.reset()
    with pytest.raises(SimulatedCaptureError, match="no captured work"):
        graph.replay()


# Memory -----------------------------------------------------------------------


def test_a_graphs_memory_is_its_own_while_it_lives(sim: Simulation) -> None:
    source = torch.ones(100, device=D)
    graph, output = capture(lambda: (source + 1) * 2)
    address = output.data_ptr()
    del output
    others = [torch.empty(100, device=D) for _ in range(8)]
    with torch.Stream(device=D):
        others += [torch.empty(100, device=D) for _ in range(8)]
    block = sim.runtime.memory.find(address)
    assert block is not None
    assert address not in [other.data_ptr() for other in others]
    acc.empty_cache()
    assert sim.runtime.memory.find(address) is block
    graph.reset()
    acc.empty_cache()
    assert sim.runtime.memory.find(address) is not block


def test_memory_inside_a_graph_is_reused_in_the_order_of_its_stream(sim: Simulation) -> None:
    source = torch.ones(100, device=D)

    def work() -> torch.Tensor:
        value = source
        for _ in range(5):
            value = value + 1
        return value

    gc.collect()
    acc.empty_cache()
    before = acc.memory_reserved()
    graph, output = capture(work)
    assert acc.memory_reserved() - before == 2 * 512
    for _ in range(2):
        graph.replay()
        assert output.cpu().tolist() == [6.0] * 100


def test_graphs_share_a_pool(sim: Simulation) -> None:
    source = torch.ones(100, device=D)
    first, output = capture(lambda: source + 1)
    pool = first.pool()
    address = output.data_ptr()
    del output
    stream, second = torch.Stream(device=D), acc.Graph(pool=pool)
    with stream, second:
        other = source + 2
    assert second.pool() == pool
    assert other.data_ptr() != address  # another stream
    third, kept = capture(lambda: source + 3, pool=pool)
    for graph in (first, second):
        graph.reset()
    third.replay()
    assert kept.cpu().tolist() == [4.0] * 100
    assert sim.runtime.memory.find(kept.data_ptr()) is not None


def test_memory_of_before_that_is_freed_in_a_capture_is_no_part_of_it(sim: Simulation) -> None:
    stream, graph = torch.Stream(device=D), acc.Graph()
    source = torch.ones(100, device=D)
    with stream:
        early = torch.ones(100, device=D)
    address = early.data_ptr()
    stream.synchronize()
    with stream, graph:
        del early
        output = source + 1
    with stream:
        again = torch.full((100,), 7.0, device=D)
    assert again.data_ptr() == address
    stream.synchronize()
    graph.replay()
    assert output.cpu().tolist() == [2.0] * 100
    assert again.cpu().tolist() == [7.0] * 100


def test_a_graph_that_is_dropped_gives_its_memory_back(sim: Simulation) -> None:
    gc.collect()
    acc.empty_cache()
    before = acc.memory_reserved()
    source = torch.ones(100, device=D)
    kept = acc.memory_reserved()
    for make in (acc.Graph, sim.module.Graph):
        graph = make()
        stream = torch.Stream(device=D)
        with stream:
            graph.capture_begin()
            output = source + 1
            graph.capture_end()
        graph.replay()
        assert output.cpu().tolist() == [2.0] * 100
        del graph, output
        gc.collect()
        acc.empty_cache()
        assert acc.memory_reserved() == kept
    assert kept == before + 512


# What a replay does anew ----------------------------------------------------------


def test_each_replay_draws_new_random_numbers_and_reproduces(sim: Simulation) -> None:
    graph, output = capture(lambda: torch.rand(8, device=D))
    torch.manual_seed(3)
    drawn = []
    for _ in range(3):
        graph.replay()
        drawn.append(output.cpu().tolist())
    assert len({tuple(numbers) for numbers in drawn}) == 3
    torch.manual_seed(3)
    graph.replay()
    assert output.cpu().tolist() == drawn[0]


def test_a_pinned_target_is_undefined_until_each_replay_is_done(sim: Simulation) -> None:
    sim.reset("lazy")
    source = torch.ones(4, device=D)
    target = torch.empty(4, pin_memory=True)
    graph = acc.Graph()
    with torch.Stream(device=D), graph:
        target.copy_(source * 2, non_blocking=True)
    for value in (2.0, 3.0):
        source.fill_(value)
        graph.replay()
        assert target.isnan().all()
        acc.synchronize()
        assert target.tolist() == [2 * value] * 4


def test_pinned_memory_of_a_graph_is_not_reused(sim: Simulation) -> None:
    source = torch.ones(64, device=D)
    target = torch.empty(64, pin_memory=True)
    address = target.data_ptr()
    graph = acc.Graph()
    with torch.Stream(device=D), graph:
        target.copy_(source, non_blocking=True)
    graph.replay()
    acc.synchronize()
    kept = sim.runtime.pinned.find(address)
    del target
    assert kept is not None
    assert kept.unfinished()
    graph.reset()
    assert not kept.unfinished()


# Kept graphs and their dumps --------------------------------------------------------


def test_a_kept_graph_is_instantiated_by_hand_or_at_its_first_replay(sim: Simulation) -> None:
    source = torch.ones(4, device=D)
    graph, output = capture(lambda: source + 1, keep_graph=True)
    graph.instantiate()
    graph.replay()
    assert output.cpu().tolist() == [2.0] * 4
    plain, _ = capture(lambda: source + 1)
    with pytest.raises(SimulatedCaptureError, match="keep_graph"):
        plain.instantiate()


def test_a_graph_is_dumped_where_debugging_was_asked_for(sim: Simulation, tmp_path: Path) -> None:
    source = torch.ones(4, device=D)
    path = tmp_path / "graph.dot"
    graph, _ = capture(lambda: source + 1)
    with pytest.raises(SimulatedCaptureError, match="enable_debug_mode"):
        graph.debug_dump(str(path))
    graph.enable_debug_mode()
    graph.debug_dump(str(path))
    assert "aten.add" in path.read_text()


def test_a_graph_captured_in_an_earlier_run_still_replays(sim: Simulation) -> None:
    source = torch.ones(4, device=D)
    graph, output = capture(lambda: source + 1)
    sim.reset("lazy")
    source.fill_(2)
    graph.replay()
    assert output.cpu().tolist() == [3.0] * 4
