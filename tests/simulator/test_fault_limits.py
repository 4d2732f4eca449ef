"""What each fault leaves alone, and how long a hang lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from omni_platforms.errors import SimulatedHangError
from omni_platforms.simulator import Simulation

D = "sim"


def current(index: int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(index)


def test_a_stream_or_device_wait_covers_the_copy_engine(sim: Simulation) -> None:
    waits: list[Callable[[], object]] = [
        lambda: current().synchronize(),
        torch.accelerator.synchronize,
        lambda: [current().query() for _ in range(20)],
    ]
    for wait in waits:
        sim.reset("lazy", faults=["dma-outside-event"])
        source = torch.ones(4, device=D)  # its memory may be reused before the engine reads it
        target = source.to("cpu", non_blocking=True)
        wait()
        assert target.tolist() == [1.0] * 4


def test_a_missed_wakeup_leaves_queries_and_stream_waits_alone(sim: Simulation) -> None:
    sim.reset("lazy", faults=["missed-wakeup"])
    target = torch.ones(4, device=D).to("cpu", non_blocking=True)
    done = current().record_event()
    while not done.query():
        pass
    current().synchronize()
    assert target.tolist() == [1.0] * 4


def test_what_hangs_blocks_and_then_says_so(sim: Simulation) -> None:
    with sim.faulty("wait-before-record-hangs", hang_seconds=0.01):
        side = torch.Stream(device=D)
        sim.module.Event().wait(side)
        done = side.record_event()
        assert not any([done.query() for _ in range(20)])
        for wait in (side.synchronize, done.synchronize, torch.accelerator.synchronize):
            with pytest.raises(SimulatedHangError, match="would never return"):
                wait()
        torch.ones(4, device=D).cpu()  # another stream goes on


def test_a_thread_that_hangs_is_let_go_with_the_fault(sim: Simulation) -> None:
    raised = []

    def hang() -> None:
        try:
            current().record_event().synchronize()
        except SimulatedHangError as error:
            raised.append(error)

    thread = threading.Thread(target=hang)
    with sim.faulty("missed-wakeup", hang_seconds=60):
        thread.start()
        while sim.host_waits_of(thread) == 0:
            pass
        assert thread.is_alive()
    thread.join(10)
    assert len(raised) == 1


def test_vendors_classes_understand_each_other_with_the_fault(sim: Simulation) -> None:
    with sim.faulty("native-event-ignored"):
        sim.reset("lazy:0.0")
        side = sim.module.Stream()
        start, ready = (sim.module.Event(enable_timing=True) for _ in range(2))
        start.record()
        value = torch.ones(4, device=D) * 3
        ready.record()
        side.wait_event(ready)
        with side:
            target = value.to("cpu", non_blocking=True)
        side.synchronize()
        assert target.tolist() == [3.0] * 4
        ready.synchronize()
        assert ready.query()
        assert start.elapsed_time(ready) > 0


def test_a_missing_method_is_missing_in_one_place(sim: Simulation) -> None:
    with sim.faulty("missing-method:empty-cache=AssertionError"):
        with pytest.raises(AssertionError, match="empty-cache is not implemented"):
            torch.accelerator.empty_cache()
        sim.module.empty_cache()
    with sim.faulty("missing-method:module.empty_cache"):
        torch.accelerator.empty_cache()
        assert not hasattr(sim.module, "empty_cache")
        assert hasattr(sim.module, "synchronize")
    assert hasattr(sim.module, "empty_cache")
    torch.accelerator.empty_cache()


def test_tensors_land_on_their_device_where_setting_it_does_nothing(sim: Simulation) -> None:
    with sim.faulty("set-device-noop"):
        assert torch.ones(4, device=f"{D}:1").device.index == 1
        assert torch.accelerator.current_device_index() == 0
        with sim.module.device(1):
            assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_device_index() == 0
