"""Times of the device stand where they were on the host's clock, or are not used."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omni_platforms.observe import device_clock
from omni_platforms.observe.device_clock import CopyTimes, DeviceClock
from omni_platforms.observe.sink import now
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.simulator import Simulation
from tests.observe.fake_clock import FakeDevice

CPU = torch.device("cpu")


def clock_of(platform: FakeDevice) -> DeviceClock:
    return DeviceClock(platform, CPU, platform.make_event)


def test_a_device_with_another_clock_is_placed_on_the_hosts() -> None:
    platform = FakeDevice(offset=-5000.0)
    clock = clock_of(platform)
    assert clock.usable
    mark, at = clock.mark(None), now()
    assert clock.at(mark) is None  # the device has not come so far
    platform.pending[0].finish(at + 0.25)
    seen = clock.at(mark)
    assert seen is not None
    assert seen == pytest.approx(at + 0.25, abs=2e-3)


@pytest.mark.parametrize("rate", [0.0, 0.01, 3.0])
def test_a_clock_that_does_not_go_as_the_hosts_is_not_used(rate: float) -> None:
    platform = FakeDevice(rate=rate)
    clock = clock_of(platform)
    assert not clock.usable
    assert clock.mark(None) is None
    assert CopyTimes(clock, platform.stream).mark() is None


def test_a_clock_that_drifts_is_placed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = FakeDevice()
    clock = clock_of(platform)
    platform.offset += 7.0  # as after an hour
    monkeypatch.setattr(device_clock, "_PLACED_FOR_S", -1.0)
    mark, at = clock.mark(None), now()
    platform.pending[0].finish(at)
    assert clock.at(mark) == pytest.approx(at, abs=2e-3)


def test_twin_a_clock_that_is_placed_once_drifts_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clock, "_PLACED_FOR_S", 1e9)
    platform = FakeDevice()
    clock = clock_of(platform)
    platform.offset += 7.0
    mark, at = clock.mark(None), now()
    platform.pending[0].finish(at)
    assert clock.at(mark) != pytest.approx(at, abs=2e-3)


def test_a_copy_begins_behind_its_computation_and_behind_the_copy_before() -> None:
    platform = FakeDevice()
    times, base = CopyTimes(clock_of(platform), object()), now()  # type: ignore[arg-type]
    first, second = times.mark(), times.mark()
    assert first is not None
    assert second is not None
    assert first() == {}
    for event, at in zip(platform.pending, (0.1, 0.4, 0.2, 0.5), strict=True):
        event.finish(base + at)
    spans = [tuple(t - base for t in span["copy"]) for span in (first(), second())]
    assert spans[0] == pytest.approx((0.1, 0.4), abs=2e-3)
    assert spans[1] == pytest.approx((0.4, 0.5), abs=2e-3)


def test_no_device_and_no_side_stream_give_no_times() -> None:
    assert not DeviceClock(CpuPlatform(), CPU).usable
    assert CopyTimes(clock_of(FakeDevice()), None).mark() is None


def test_a_simulated_device_counts_tasks_and_is_not_believed(sim: Simulation) -> None:
    device: Any = sim.platform.device(0)
    assert not DeviceClock(sim.platform, device).usable
    one, other = (torch.Event(device, enable_timing=True) for _ in range(2))
    one.record()
    other.record()
    other.synchronize()
    assert one.elapsed_time(other) >= 0.0  # it has a clock, of another kind
