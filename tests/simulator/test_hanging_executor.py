"""`AsyncOutputExecutor` on a device that hangs or waits in secret, and what the harness sees."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch

from omni_platforms.errors import DrainTimeoutError, ExecutorClosedError, OutputTimeoutError
from omni_platforms.outputs import AsyncOutputExecutor, OutputFuture
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.simulator import Simulation
from omni_platforms.simulator.platform import SimulatedPlatform

SMALL, LARGE = 64, 20_000  # elements: copied late, and copied on the side stream


class Corrupt(AssertionError):
    """Bytes that the program did not compute."""


# Hangs ----------------------------------------------------------------------------


def hang_the_current_stream(sim: Simulation) -> None:
    """What a wait before its record does to the stream of the user's own code."""
    sim.module.Event().wait()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_stream_that_hangs_is_a_bounded_wait_that_says_where(sim: Simulation, size: int) -> None:
    with sim.faulty("wait-before-record-hangs", hang_seconds=60):
        sim.reset("lazy")
        outputs = AsyncOutputExecutor(sim.platform)
        image = torch.ones(size, device="sim")
        hang_the_current_stream(sim)
        future = outputs.submit(image)
        begin = time.perf_counter()
        with pytest.raises(OutputTimeoutError, match="device to finish the work enqueued before"):
            future.result(0.05)
        with pytest.raises(DrainTimeoutError, match="must not be released"):
            outputs.drain(0.05)
        outputs.close(0.05)
        with pytest.raises(ExecutorClosedError, match="output 0"):
            future.result(0.05)
        assert time.perf_counter() - begin < 5


def test_other_streams_outputs_still_arrive_in_time(sim: Simulation) -> None:
    """A second executor, on another device, is not held up by the first one's hang."""
    with sim.faulty("wait-before-record-hangs", hang_seconds=60):
        sim.reset("lazy")
        stuck, other = AsyncOutputExecutor(sim.platform, 0), AsyncOutputExecutor(sim.platform, 1)
        hang_the_current_stream(sim)
        future = stuck.submit(torch.ones(LARGE, device="sim"))
        with other:
            assert other.submit(torch.ones(LARGE, device="sim:1")).result(10).eq(1).all()
        assert not future.done()
        stuck.close(0.05)


def test_the_contracts_own_wait_does_not_depend_on_the_wakeup(sim: Simulation) -> None:
    with (
        sim.faulty("missed-wakeup", hang_seconds=2),
        mock.patch.object(SimulatedPlatform, "synchronize_event", OmniPlatform.synchronize_event),
        AsyncOutputExecutor(sim.platform) as outputs,
    ):
        assert outputs.submit(torch.ones(LARGE, device="sim")).result(10).eq(1).all()


# What the harness sees ------------------------------------------------------------


@pytest.mark.parametrize("primitive", ["record-event", "wait-event", "copy-to-host", "pin"])
def test_a_hidden_wait_in_submit_is_counted(sim: Simulation, primitive: str) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(LARGE, device="sim")
        for fault, waits in (([], False), ([f"hidden-host-sync:{primitive}"], True)):
            with sim.faulty(*fault):
                before = sim.host_waits_of()
                future = outputs.submit(image)
                assert (sim.host_waits_of() > before) is waits
            future.result(10)


def submit_from_two_threads(sim: Simulation) -> None:
    before = torch.accelerator.current_stream()
    with AsyncOutputExecutor(sim.platform) as outputs:

        def submit() -> list[OutputFuture]:
            own = torch.Stream(device="sim")
            torch.accelerator.set_stream(own)
            futures = [outputs.submit(torch.ones(LARGE, device="sim")) for _ in range(3)]
            assert torch.accelerator.current_stream() == own
            return futures

        with ThreadPoolExecutor(2) as pool:
            parts = [pool.submit(submit) for _ in range(2)]
            futures = [future for part in parts for future in part.result()]
        for future in futures:
            if not future.result(10).eq(1).all():
                raise Corrupt
    assert torch.accelerator.current_stream() == before


def two_threads_on_the_side_stream_at_once(sim: Simulation) -> None:
    """The first to enter the side stream leaves it first, while the other is still inside."""
    own = torch.Stream(device="sim")
    both_inside = threading.Barrier(2, timeout=10)
    first_left = threading.Event()

    def first(outputs: AsyncOutputExecutor) -> torch.Stream:
        torch.accelerator.set_stream(own)

        def inside(image: torch.Tensor) -> torch.Tensor:
            both_inside.wait()  # the other thread enters between these
            both_inside.wait()
            return image

        outputs.submit(torch.ones(LARGE, device="sim"), on_device=inside)
        return torch.accelerator.current_stream()

    def second(image: torch.Tensor) -> torch.Tensor:
        both_inside.wait()
        assert first_left.wait(10)
        return image

    with AsyncOutputExecutor(sim.platform) as outputs, ThreadPoolExecutor(1) as pool:
        found = pool.submit(first, outputs)
        found.add_done_callback(lambda _: first_left.set())
        both_inside.wait()
        outputs.submit(torch.ones(LARGE, device="sim"), on_device=second)
    if found.result() != own:
        raise Corrupt(found.result())


def test_two_threads_leave_the_side_stream_as_they_came(sim: Simulation) -> None:
    with sim.faulty("stream-context-on-object"):
        two_threads_on_the_side_stream_at_once(sim)
        sim.reset()
        vendors = mock.patch.object(
            SimulatedPlatform, "stream_context", lambda self, stream: sim.module.stream(stream)
        )
        with vendors, pytest.raises(Corrupt):
            two_threads_on_the_side_stream_at_once(sim)


def waits_that_follow_their_record(timeline: str) -> int:
    """Count the waits for events; each must come after the record of its event."""
    recorded, waits = set(), 0
    for line in timeline.splitlines():
        record = re.search(r"enqueues .*record event (\d+)", line)
        wait = re.search(r"enqueues .*wait for event (\d+)", line)
        if record:
            recorded.add(record[1])
        elif wait:
            assert wait[1] in recorded, line
            waits += 1
    return waits


def test_no_wait_is_put_before_its_record(sim: Simulation) -> None:
    """torch drops a wait for an event without a record, so all six must have come through."""

    def scenario() -> None:
        submit_from_two_threads(sim)
        assert waits_that_follow_their_record(sim.timeline()) == 6

    with sim.faulty("wait-before-record-hangs", hang_seconds=0.01):
        found = sim.explore(scenario, seeds=30, max_streams=16)
    assert found.ok, str(found)
