"""What `AsyncOutputExecutor` does on a device with a fault.

Right bytes, a clear error, or a bounded wait that explains itself: never a
hang, and never wrong bytes where the executor could know better. Where it
cannot, exploring shows the corruption.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import ExecutorClosedError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.simulator import Exploration, SimulatedPlatform, Simulation

SMALL, LARGE = 64, 20_000  # elements: copied late, and copied on the side stream


class Corrupt(AssertionError):
    """Bytes that the program did not compute."""


def outputs_of_three_steps(sim: Simulation, device: int = 0, **options: Any) -> None:
    """Small, large, borrowed and cast outputs; all memory is used again at once."""
    with AsyncOutputExecutor(sim.platform, device, **options) as outputs:
        futures = []
        static = torch.zeros(LARGE, device=f"sim:{device}")
        for i in range(3):
            for size in (SMALL, LARGE):
                image = torch.full((size,), float(i), device=f"sim:{device}") * 2
                futures.append((2 * i, outputs.submit(image)))
                del image
                torch.full((size,), 99.0, device=f"sim:{device}")
            static.fill_(i)
            futures.append((i, outputs.submit(static, borrow=True)))
            futures.append((i + 1, outputs.submit(static + 1, on_device=lambda x: x.half())))
        for want, future in futures:
            if not future.result(10).eq(want).all():
                raise Corrupt(want)


def explore(sim: Simulation, device: int = 0) -> Exploration:
    return sim.explore(lambda: outputs_of_three_steps(sim, device), seeds=5, max_streams=16)


HARMLESS = [
    "native-event-ignored",
    "missed-wakeup",
    "wait-before-record-hangs",
    "same-stream-wait-raises",
    "pageable-copy-async",
    "pin-rounds-up",
    "stream-context-on-object",
    "missing-method:synchronize-event",
    "missing-method:synchronize-stream",
    "missing-method:empty-cache",
    "missing-method:memory-info",
    "missing-method:module.mem_get_info",
    "hidden-host-sync:record-event",
    "hidden-host-sync:wait-event",
    "hidden-host-sync:copy-to-host",
    "hidden-host-sync:pin",
    "hidden-host-sync:set-stream",
]


@pytest.mark.parametrize("fault", HARMLESS)
def test_right_bytes_in_spite_of(sim: Simulation, fault: str) -> None:
    with sim.faulty(fault):
        found = explore(sim)
    assert found.ok, str(found)


def test_a_platform_that_records_native_events_is_refused_or_right(sim: Simulation) -> None:
    """torch would ignore such an event without a word, and the copy would come too early."""

    def record(self: SimulatedPlatform, stream: torch.Stream | None = None) -> torch.Event:
        event = sim.module.Event()
        event.record(stream)
        return event

    with (
        sim.faulty("native-event-ignored"),
        mock.patch.object(SimulatedPlatform, "record_device_event", record),
    ):
        sim.reset("lazy")
        with AsyncOutputExecutor(sim.platform) as outputs:
            for size in (SMALL, LARGE):
                future = outputs.submit(torch.full((size,), 3.0, device="sim") * 2)
                error = future.exception(10)
                if error is None:
                    assert future.result(0).eq(6).all()
                else:
                    assert isinstance(error, TypeError)
                    assert "not for a omni_platforms.simulator.native" in str(error)
        assert error is not None, "the large output needs the side stream"


@pytest.mark.parametrize("fault", ["no-pin", "pin-raises"])
@pytest.mark.parametrize("more", [[], ["pageable-copy-async"]])
def test_without_pinned_memory_copies_block_and_say_so(
    sim: Simulation, fault: str, more: list[str]
) -> None:
    with sim.faulty(fault, *more), pytest.warns(RuntimeWarning, match="pinned memory"):
        found = explore(sim)
    assert found.ok, str(found)
    with sim.faulty(fault), pytest.warns(RuntimeWarning, match="blocking call"):
        outputs = AsyncOutputExecutor(sim.platform)
    with outputs:
        assert (outputs.stats().mode, outputs.stats().pinned) == ("blocking", False)


@pytest.mark.parametrize("fault", ["set-device-noop", "hidden-host-sync:set-device"])
def test_right_bytes_from_the_second_device(sim: Simulation, fault: str) -> None:
    with sim.faulty(fault):
        found = explore(sim, device=1)
    assert found.ok, str(found)


def test_a_copy_that_no_event_covers_is_seen(sim: Simulation) -> None:
    """The executor has nothing but events to go by, so here the harness must be red."""
    with sim.faulty("dma-outside-event"):
        found = explore(sim)
    assert any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)


def test_a_side_stream_on_the_wrong_device(sim: Simulation) -> None:
    with sim.faulty("stream-ignores-index"):
        found = explore(sim, device=1)
    assert not any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)


# Missing methods ------------------------------------------------------------------


@pytest.mark.parametrize("error", ["RuntimeError", "AttributeError", "AssertionError"])
@pytest.mark.parametrize("method", ["record-event", "wait-event", "query-event", "set-stream"])
def test_each_output_fails_with_the_name_of_what_is_missing(
    sim: Simulation, method: str, error: str
) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        images = [torch.full((size,), 3.0, device="sim") for size in (SMALL, LARGE)]
        with sim.faulty(f"missing-method:{method}={error}"):
            futures = [outputs.submit(image) for image in images]
            errors = [future.exception(10) for future in futures]
        for future, found in zip(futures, errors, strict=True):
            if found is None:
                assert future.result(0).eq(3).all()
            else:
                assert type(found).__name__ == error
                assert f"{method} is not implemented" in str(found)
        assert any(errors)
        later = outputs.submit(images[1])
        assert later.result(10).eq(3).all(), "the executor works again when the device does"


def test_a_thread_that_cannot_set_its_device_ends_the_executor(sim: Simulation) -> None:
    outputs = AsyncOutputExecutor(sim.platform)
    with sim.faulty("missing-method:set-device"), mock.patch("threading.excepthook"):
        future = outputs.submit(torch.ones(LARGE, device="sim"), on_host=lambda value: value)
        error = future.exception(10)
    assert isinstance(error, ExecutorClosedError)
    assert "set-device is not implemented" in str(error.__cause__)
    outputs.close()


@pytest.mark.parametrize(
    "fault",
    ["missing-method:new-stream", "missing-method:new-stream=AttributeError",
     "missing-method:pin=AssertionError", "missing-method:pin=AttributeError"],
)  # fmt: skip
def test_without_side_streams_or_pinning_copies_block(sim: Simulation, fault: str) -> None:
    with sim.faulty(fault), pytest.warns(RuntimeWarning, match="blocking call"):
        outputs = AsyncOutputExecutor(sim.platform)
    with outputs:
        assert outputs.stats().mode == "blocking"


def _left_after_a_drain(sim: Simulation) -> list[str]:
    """Return what is still queued once an output whose wait fails was drained."""
    sim.reset("lazy")
    outputs = AsyncOutputExecutor(sim.platform)
    with sim.faulty("missing-method:query-event"):
        future = outputs.submit(torch.ones(LARGE, device="sim"))
        assert future.exception(10) is not None
        outputs.drain(1.0)
        queues = sim.runtime.scheduler.queues()
        # Giving memory back is an operation of the stream too, and may come later.
        left = [str(task) for queue in queues for task in queue.tasks if "free" not in str(task)]
    outputs.close()
    return left


def test_a_drain_covers_copies_whose_wait_failed(sim: Simulation) -> None:
    assert not _left_after_a_drain(sim)


def test_without_a_wait_for_the_device_they_would_be_left(sim: Simulation) -> None:
    with mock.patch.object(SimulatedPlatform, "synchronize", return_value=None):
        assert any("copy to host" in task for task in _left_after_a_drain(sim))
