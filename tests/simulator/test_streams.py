"""Streams, events, devices and threads through torch's own interface."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import Simulation

D = "sim"


def current(index: int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(index)


def pending_copy(value: float = 2.0) -> tuple[torch.Tensor, torch.Event]:
    """Queue a copy on the current stream; return its target and an event after it."""
    target = torch.full((4,), value, device=D).to("cpu", non_blocking=True)
    return target, current().record_event()


def test_torch_knows_the_accelerator(sim: Simulation) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device(D)
    assert torch.accelerator.device_count() == 2
    assert torch.get_device_module(D) is sim.module
    assert torch.empty(1, device=f"{D}:1").device.index == 1
    assert torch.tensor([1.0], device=D).sim().is_sim


def test_new_streams_are_distinct_and_know_their_device(sim: Simulation) -> None:
    one, other = torch.Stream(device=D), torch.Stream(device=f"{D}:1")
    assert one != torch.Stream(device=D)
    assert other.device_index == 1
    assert one != current()
    assert current() == current(0)


def test_setting_a_stream_sets_its_device(sim: Simulation) -> None:
    stream = torch.Stream(device=f"{D}:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_device_index() == 1
    assert current() == stream
    torch.accelerator.set_device_index(0)
    assert current() != stream
    assert current(1) == stream


def test_a_device_that_is_not_there(sim: Simulation) -> None:
    with pytest.raises(SimulatorStateError, match="device_count"):
        torch.empty(1, device=f"{D}:2")
    with pytest.raises(RuntimeError):
        torch.accelerator.set_device_index(2)


def test_the_stream_comes_back_after_an_error(sim: Simulation) -> None:
    side, before = torch.Stream(device=f"{D}:1"), current()

    def fail(context: AbstractContextManager[object]) -> None:
        with context:
            assert current() == side
            raise ZeroDivisionError

    for context in (side, sim.module.stream(side)):
        with pytest.raises(ZeroDivisionError):
            fail(context)
        assert current() == before
        assert torch.accelerator.current_device_index() == 0


def test_each_thread_has_its_own_device_and_streams(sim: Simulation) -> None:
    torch.accelerator.set_stream(torch.Stream(device=f"{D}:1"))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.accelerator.current_device_index).result() == 0
        assert pool.submit(current, 1).result() == sim.module.default_stream(1)
        pool.submit(torch.accelerator.set_device_index, 0).result()
    assert torch.accelerator.current_device_index() == 1


def test_nothing_lazy_runs_until_it_is_demanded(sim: Simulation) -> None:
    sim.reset("lazy")
    target, done = pending_copy()
    assert target.isnan().all()
    done.synchronize()
    assert target.tolist() == [2.0] * 4


@pytest.mark.parametrize("how", ["event", "stream", "device", "query", "stream_query", "item"])
def test_every_wait_of_the_host_demands_the_work(sim: Simulation, how: str) -> None:
    sim.reset("lazy")
    target, done = pending_copy()

    def poll(query: object) -> None:
        answers = [query() for _ in range(10)]  # type: ignore[operator]
        assert answers == sorted(answers)
        assert answers[0] is False
        assert answers[-1] is True

    waits = {
        "event": done.synchronize,
        "stream": current().synchronize,
        "device": torch.accelerator.synchronize,
        "query": lambda: poll(done.query),
        "stream_query": lambda: poll(current().query),
        "item": lambda: torch.ones(1, device=D).item(),
    }
    waits[how]()
    assert target.tolist() == [2.0] * 4
    assert sim.host_waits == (0 if "query" in how else 1)
    assert sim.host_waits_of() == sim.host_waits


def test_a_wait_runs_no_more_than_it_needs(sim: Simulation) -> None:
    sim.reset("lazy")
    first, done = pending_copy(1.0)
    second, _ = pending_copy(2.0)
    side = torch.Stream(device=D)
    with side:
        third, _ = pending_copy(3.0)
    done.synchronize()
    assert first.tolist() == [1.0] * 4
    assert second.isnan().all()
    assert third.isnan().all()


def test_waits_are_counted_for_each_thread(sim: Simulation) -> None:
    _, done = pending_copy()
    worker = threading.Thread(target=done.synchronize)
    worker.start()
    worker.join()
    assert (sim.host_waits, sim.host_waits_of()) == (1, 0)
    assert sim.platform.host_waits == 1


def test_an_event_means_its_latest_record_at_the_wait(sim: Simulation) -> None:
    sim.reset("lazy")
    event, side = torch.Event(device=D), torch.Stream(device=D)
    value = torch.zeros(1, device=D)
    value.add_(1)
    event.record()
    side.wait_event(event)
    value.add_(1)
    event.record()  # after the wait, which it does not change
    with side:
        seen = value.to("cpu", non_blocking=True)
    side.synchronize()
    assert seen.item() == 1
    assert value.item() == 2


def test_an_event_that_was_never_recorded_is_complete(sim: Simulation) -> None:
    sim.reset("lazy")
    event = torch.Event(device=D)
    assert event.query()
    event.synchronize()
    current().wait_event(event)
    assert event.event_id == 0


def test_elapsed_time(sim: Simulation) -> None:
    sim.reset("lazy")
    start, end = (torch.Event(device=D, enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(3, device=D).add_(1)
    end.record()
    with pytest.raises(RuntimeError, match="completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 0


def test_streams_that_wait_for_each_other_very_often(sim: Simulation) -> None:
    sim.reset("lazy")
    streams = [torch.Stream(device=D), torch.Stream(device=D)]
    value = torch.zeros(1, device=D)
    streams[0].wait_event(current().record_event())
    for hop in range(3000):
        with streams[hop % 2]:
            value.add_(1)
        streams[(hop + 1) % 2].wait_event(streams[hop % 2].record_event())
    streams[0].synchronize()
    assert value.item() == 3000


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random:1", "random:2"])
def test_many_threads_poll_and_wait(sim: Simulation, schedule: str) -> None:
    sim.reset(schedule)

    def work(number: int) -> list[float]:
        results = []
        side = torch.Stream(device=f"{D}:{number % 2}")
        for step in range(20):
            with side:
                target, done = pending_copy(float(step))
            while number % 3 and not done.query():
                time.sleep(0)
            done.synchronize()
            results.append(target[3].item())
        return results

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[float(step) for step in range(20)]] * 8


def test_copies_between_devices_are_ordered(sim: Simulation) -> None:
    def scenario() -> None:
        source = torch.arange(3.0, device=f"{D}:0") + 1
        there = source.to(f"{D}:1") * 2
        back = there.to(f"{D}:0") + 1
        assert back.cpu().tolist() == [3.0, 5.0, 7.0]

    found = sim.explore(scenario, seeds=30)
    assert found.ok, str(found)


def test_the_name_of_a_schedule_that_is_none(sim: Simulation) -> None:
    for name in ("eagre", "lazy:", "lazy:1", "only", "only:", "random:x", "random"):
        with pytest.raises(SimulatorStateError, match="is not a schedule"):
            sim.reset(name)


def test_a_lazy_stream_alone(sim: Simulation) -> None:
    sim.reset("lazy:0.1")
    side = torch.Stream(device=D)
    with side:
        late, _ = pending_copy()
    early, _ = pending_copy()
    assert late.isnan().all()
    assert early.tolist() == [2.0] * 4
