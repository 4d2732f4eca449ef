"""What PyTorch asks of each accelerator through `torch.accelerator` and generic classes.

The behaviours that the tests of `torch.accelerator` and of torch's reference
backend cover, on two simulated devices.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch

from omni_platforms.simulator import Simulation

D = "sim"
acc = torch.accelerator


def state() -> tuple[int, torch.Stream, torch.Stream]:
    """The calling thread's current device, and its stream on each device."""
    return acc.current_device_index(), acc.current_stream(0), acc.current_stream(1)


# Devices ----------------------------------------------------------------------


def test_a_device_in_each_way_to_name_it(sim: Simulation) -> None:
    for device in (1, f"{D}:1", torch.device(D, 1)):
        acc.set_device_index(device)
        assert acc.current_device_index() == sim.module.current_device() == 1
        assert torch.empty(1, device=D).device == torch.device(D, 1)
        assert acc.current_stream(device).device_index == 1
        acc.set_device_index(0)


def test_a_device_of_another_type_is_refused(sim: Simulation) -> None:
    for call in (acc.set_device_index, acc.current_stream, acc.synchronize, acc.memory_stats):
        with pytest.raises(ValueError, match="current accelerator"):
            call("cpu")
    assert acc.current_accelerator() == torch.device(D)
    assert acc.current_accelerator().index is None


def test_the_device_guard_nests_and_takes_none(sim: Simulation) -> None:
    with acc.device_index(1):
        with acc.device_index(None):
            assert acc.current_device_index() == 1
        with acc.device_index(0):
            assert acc.current_device_index() == 0
        assert acc.current_device_index() == 1
    assert acc.current_device_index() == 0


def test_work_on_another_device_leaves_the_current_one(sim: Simulation) -> None:
    acc.set_device_index(1)
    value = torch.ones(3, device=f"{D}:0") + 1
    assert (acc.current_device_index(), value.device.index) == (1, 0)
    acc.synchronize(0)
    with pytest.raises(RuntimeError):
        torch.ones(2, 3, device=D) @ torch.ones(2, 3, device=D)
    assert acc.current_device_index() == 1


# Streams ----------------------------------------------------------------------


def test_a_stream_on_the_current_device_or_a_named_one(sim: Simulation) -> None:
    assert torch.Stream().device == torch.device(D, 0)
    assert torch.Stream(1).device == torch.device(D, 1)
    assert torch.Stream(device=f"{D}:1").device == torch.device(D, 1)
    with acc.device_index(1):
        assert torch.Stream().device_index == 1
    assert f"device_type={D}, device_index=1" in repr(torch.Stream(1))


def test_streams_are_equal_by_number_device_and_type(sim: Simulation) -> None:
    one = torch.Stream()
    same = torch.Stream(
        stream_id=one.stream_id, device_index=one.device_index, device_type=one.device_type
    )
    elsewhere = torch.Stream(stream_id=one.stream_id, device_index=1, device_type=one.device_type)
    assert one == same
    assert hash(one) == hash(same)
    assert one != elsewhere
    assert one != torch.Stream()
    assert len({one, same, elsewhere}) == 2
    assert sim.module.Stream(stream_id=one.stream_id, device_index=0) == one
    assert acc.current_stream(1) != acc.current_stream(0)  # both have number 0


def test_entering_one_stream_again(sim: Simulation) -> None:
    before, outer, inner = state(), torch.Stream(), torch.Stream()
    with outer, outer:
        assert acc.current_stream() == outer
    assert state() == before
    with outer, inner, outer:
        assert acc.current_stream() == outer
    assert state() == before


def test_entering_a_stream_of_another_device(sim: Simulation) -> None:
    before = state()
    with torch.Stream(1) as stream:
        assert state() == (1, before[1], stream)
    assert state() == before


class _Boom(Exception):
    pass


def _fail_inside(*contexts: AbstractContextManager[object]) -> None:
    with contexts[0], contexts[1]:
        torch.ones(1, device=D)
        raise _Boom


def _contexts(sim: Simulation) -> Iterator[AbstractContextManager[object]]:
    yield torch.Stream(1)
    yield sim.module.stream(torch.Stream(1))
    yield sim.module.device(1)
    yield acc.device_index(1)
    yield sim.platform.stream_context(torch.Stream(1))


def test_device_and_streams_come_back_after_an_error_in_each_thread(sim: Simulation) -> None:
    found: list[bool] = []

    def work() -> None:
        acc.set_stream(torch.Stream(0))
        before = state()
        for first, second in itertools.product(range(5), range(5)):
            contexts = [list(_contexts(sim))[n] for n in (first, second)]
            with pytest.raises(_Boom):
                _fail_inside(*contexts)
            found.append(state() == before)

    mine = state()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 75
    assert state() == mine


# Events -----------------------------------------------------------------------


@pytest.mark.parametrize("device", [D, f"{D}:1", None])
def test_an_event_belongs_to_a_device_once_it_is_recorded(sim: Simulation, device: object) -> None:
    event = torch.Event() if device is None else torch.Event(device)
    assert (event.device.type, event.device.index, event.event_id) == (D, None, 0)
    assert event.query()
    stream = torch.Stream(1)
    event.record(stream)
    assert event.device == torch.device(D, 1)
    assert event.event_id != 0
    assert event.event_id != stream.record_event().event_id


def test_an_event_is_recorded_on_the_current_stream_and_again(sim: Simulation) -> None:
    sim.reset("lazy")
    event, side = torch.Event(D), torch.Stream()
    with side:
        torch.ones(2, device=D).add_(1)
        event.record()
    assert not event.query()
    side.synchronize()
    assert event.query()
    with side:
        torch.ones(2, device=D).add_(1)
        event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()


@pytest.mark.parametrize("kind", ["generic", "module"])
def test_elapsed_time_needs_timing_a_record_and_an_end(sim: Simulation, kind: str) -> None:
    sim.reset("lazy")

    def make(timing: bool) -> torch.Event:
        if kind == "module":
            return sim.module.Event(enable_timing=timing)
        return torch.Event(D, enable_timing=timing)

    plain, start, end = make(False), make(True), make(True)
    for pair in ((plain, plain), (plain, end), (start, plain)):
        with pytest.raises(ValueError, match="enable_timing=True"):
            pair[0].elapsed_time(pair[1])
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    torch.ones(2, device=D).add_(1)
    end.record()
    with pytest.raises(RuntimeError, match="complete"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_streams_that_wait_for_one_event_and_for_each_other(sim: Simulation) -> None:
    def scenario() -> None:
        first, second, third = torch.Stream(), torch.Stream(), torch.Stream(1)
        with first:
            value = torch.full((8,), 2.0, device=D) * 3
        done = first.record_event()
        for stream in (second, third):
            stream.wait_event(done)
        with second:
            doubled = value * 2
        value.record_stream(second)
        third.wait_stream(second)
        third.synchronize()
        assert second.query()
        assert doubled.cpu().tolist() == [12.0] * 8

    found = sim.explore(scenario, seeds=20)
    assert not found.failures, str(found)


# Copies, saving and random numbers ----------------------------------------------


def test_a_copy_that_does_not_block_lands_in_pinned_memory(sim: Simulation) -> None:
    sim.reset("lazy")
    source = torch.arange(4.0, device=D)
    copy = source.to("cpu", non_blocking=True)
    assert copy.is_pinned()
    assert copy.isnan().all()
    acc.synchronize()
    assert copy.tolist() == [0.0, 1.0, 2.0, 3.0]
    back = copy.to(D, non_blocking=True)
    assert sim.host_waits == 1
    assert back.cpu().tolist() == copy.tolist()


@pytest.mark.filterwarnings("ignore:The argument 'device'")
def test_pinned_storages(sim: Simulation) -> None:
    storage = torch.arange(4.0).untyped_storage()
    assert not storage.is_pinned(D)
    assert storage.pin_memory(D).is_pinned(D)
    acc.empty_host_cache()


@pytest.mark.parametrize("target", [None, D, f"{D}:0", "cpu"])
def test_saving_and_loading_keeps_the_index(sim: Simulation, target: str | None) -> None:
    file = io.BytesIO()
    torch.save({"a": torch.arange(3.0, device=f"{D}:1"), "b": torch.ones(2, device=D)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=target)
    places = {None: (1, 0), D: (0, 0), f"{D}:0": (0, 0), "cpu": (None, None)}
    assert (loaded["a"].device.index, loaded["b"].device.index) == places[target]
    assert loaded["a"].cpu().tolist() == [0.0, 1.0, 2.0]
    storage = torch.ones(1, device=f"{D}:1").untyped_storage()
    assert torch.serialization.location_tag(storage) == f"{D}:1"


def test_seeds_reproduce_and_differ(sim: Simulation) -> None:
    module = sim.module
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)  # all devices, also this one
        drawn.append([torch.rand(4, device=f"{D}:{n}").tolist() for n in (0, 1)])
    assert drawn[0] == drawn[1]
    module.manual_seed_all(11)
    assert module.initial_seed() == 11
    with acc.device_index(1):
        assert module.initial_seed() == 11
        module.manual_seed(5)
        assert module.initial_seed() == 5
    assert module.initial_seed() == 11
    module.seed_all()
    first = module.initial_seed()
    module.seed_all()
    assert module.initial_seed() != first


def test_states_of_the_generators_of_all_devices(sim: Simulation) -> None:
    module = sim.module
    states = module.get_rng_state_all()
    assert len(states) == 2
    first = [torch.rand(3, device=f"{D}:{n}").tolist() for n in (0, 1)]
    module.set_rng_state_all(states)
    assert [torch.rand(3, device=f"{D}:{n}").tolist() for n in (0, 1)] == first
    module.set_rng_state(states[1], 1)
    assert torch.rand(3, device=f"{D}:1").tolist() == first[1]
    assert torch.equal(module.get_rng_state(0), module.get_rng_state(D))
    generator = torch.Generator(device=f"{D}:1").manual_seed(3)
    assert (generator.device.index, generator.initial_seed()) == (1, 3)
