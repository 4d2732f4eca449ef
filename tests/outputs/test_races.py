"""The executor on a simulated accelerator under adversarial schedules.

Every protection is removed once, in a table of mutations, and the named
scenario must turn red: otherwise the scenario proves nothing.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import DrainTimeoutError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.outputs import issue as issue_module
from omni_platforms.outputs.issue import Issuer
from omni_platforms.outputs.resolver import Resolver
from omni_platforms.outputs.small import SmallCopies
from omni_platforms.outputs.waiter import Waiter
from omni_platforms.platform.accelerator import StreamContext
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.simulator import Simulation
from tests.outputs.test_nest import DTYPES, LAYOUTS, bits, make_tensor
from tests.simulated import NAME, UNSUPPORTED, seeds

Scenario = Callable[[Simulation], None]


def fresh_outputs(sim: Simulation) -> None:
    """Each output is computed, submitted, dropped, and its memory used again at once."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = []
        for i in range(3):
            image = torch.full((64,), float(i), device=NAME) * 2
            futures.append(outputs.submit({"image": image, "step": i}))
            del image
            torch.full((64,), 99.0, device=NAME)
        for i, future in enumerate(futures):
            result = future.result(10)
            assert result["image"].tolist() == [2.0 * i] * 64, "CORRUPT"


def large_outputs(sim: Simulation) -> None:
    """As `fresh_outputs`, above the size that is copied out of pinned memory."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = []
        for i in range(3):
            image = torch.full((20_000,), float(i), device=NAME) * 2
            futures.append(outputs.submit(image))
            del image
            torch.full((20_000,), 99.0, device=NAME)
        for i, future in enumerate(futures):
            assert future.result(10).eq(2.0 * i).all(), "CORRUPT"


def small_outputs_in_turn(sim: Simulation) -> None:
    """Results are kept while later outputs use the same staging buffer."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        results = []
        for i in range(3):
            results.append(outputs.submit(torch.full((64,), float(i), device=NAME) * 2).result(10))
        for i, result in enumerate(results):
            assert result.tolist() == [2.0 * i] * 64, "CORRUPT"


def small_output_of_another_stream(sim: Simulation) -> None:
    """The memory belongs to a stream that is not the one of submit, and is used again there."""
    platform = sim.platform
    producer = platform.create_side_stream()
    with AsyncOutputExecutor(platform) as outputs:
        with platform.stream_context(producer):
            image = torch.full((64,), 3.0, device=NAME)
        current = platform.current_stream()
        platform.stream_wait_event(current, platform.record_device_event(producer))
        future = outputs.submit(image)
        del image
        with platform.stream_context(producer):
            torch.full((64,), 99.0, device=NAME)
        assert future.result(10).tolist() == [3.0] * 64, "CORRUPT"


def borrowed_outputs(sim: Simulation) -> None:
    """Static buffers, a small and a large one, overwritten by every step."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        small, large = torch.zeros(64, device=NAME), torch.zeros(20_000, device=NAME)
        futures = []
        for i in range(3):
            small.fill_(i)
            large.fill_(i)
            futures.append(outputs.submit(small, borrow=True))
            futures.append(outputs.submit(large, borrow=True))
        for i, future in enumerate(futures):
            assert future.result(10).eq(i // 2).all(), "CORRUPT"


def casts_on_device(sim: Simulation) -> None:
    """`on_device` runs on the side stream, after the work and before the copy."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = []
        for i in range(3):
            image = torch.full((64,), float(i), device=NAME) + 1
            futures.append(outputs.submit(image, on_device=lambda x: (x * 10).to(torch.uint8)))
            del image
        for i, future in enumerate(futures):
            assert future.result(10).tolist() == [10 * (i + 1)] * 64, "CORRUPT"


def other_streams(sim: Simulation) -> None:
    """The output is produced on two streams that are not current at submit."""
    platform = sim.platform
    one, two = platform.create_side_stream(), platform.create_side_stream()
    with AsyncOutputExecutor(platform) as outputs:
        with platform.stream_context(one):
            a = torch.full((64,), 1.0, device=NAME) * 3
        with platform.stream_context(two):
            b = torch.full((64,), 1.0, device=NAME) * 4
        future = outputs.submit([a, b], streams=[one, two])
        del a, b
        got = future.result(10)
        assert got[0].tolist() == [3.0] * 64, "CORRUPT"
        assert got[1].tolist() == [4.0] * 64, "CORRUPT"


def drained_outputs(sim: Simulation) -> None:
    """After `drain` every copy is done: the source may be overwritten.

    The background thread looks at the device only once `drain` waits for it.
    """
    platform = sim.platform
    may_look = threading.Event()
    ask = platform.synchronize_event

    def ask_late(*args: Any) -> bool:
        assert may_look.wait(10)
        return ask(*args)

    with AsyncOutputExecutor(platform) as outputs:
        finished = outputs._waiter._finished
        wait_for = finished.wait_for

        def let_look(*args: Any, **kwargs: Any) -> bool:
            may_look.set()
            return wait_for(*args, **kwargs)

        with (
            mock.patch.object(platform, "synchronize_event", ask_late),
            mock.patch.object(finished, "wait_for", let_look),
        ):
            weights = torch.full((20_000,), 5.0, device=NAME)
            future = outputs.submit(weights)
            outputs.drain()
            weights.fill_(9.0)
            may_look.set()
            assert future.result(10).eq(5.0).all(), "CORRUPT"


SCENARIOS = [
    fresh_outputs, small_outputs_in_turn, small_output_of_another_stream, large_outputs,
    borrowed_outputs, casts_on_device, other_streams, drained_outputs,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_no_schedule_corrupts_an_output(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(sim), seeds=seeds(60))
    assert found.ok, str(found)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _forget_sources(self: Any, pending: Any, *args: Any) -> None:
    _copy_on_side(self, pending, *args)
    pending.sources = None


def _record_before(self: Any, pending: Any, request: Any) -> None:
    early = self._platform.record_device_event(self._side)
    _copy_on_side(self, pending, request)
    pending.done = early


def _record_before_here(self: Any, pending: Any, *args: Any) -> None:
    early = self._platform.record_device_event()
    _issue_small(self, pending, *args)
    pending.done = early


def _forget_sources_here(self: Any, pending: Any, *args: Any) -> None:
    _issue_small(self, pending, *args)
    pending.sources = None


def _take_no_copy(self: Any, buffer: torch.Tensor) -> torch.Tensor:
    _take(self, buffer)
    return buffer


def _first_stream_only(self: Any, streams: Any) -> Any:
    return _record_gates(self, streams[:1] if streams else streams)


_copy_on_side = Issuer._copy_on_side
_record_gates = Issuer._record_gates
_issue_small = Issuer.issue_small
_take = SmallCopies.take

MUTATIONS = {
    "the side stream does not wait for the work": (
        large_outputs, OmniPlatform, "stream_wait_event", _nothing),
    "the device tensors are let go at submit": (
        large_outputs, Issuer, "_copy_on_side", _forget_sources),
    "the completion event is recorded before the copy": (
        large_outputs, Issuer, "_copy_on_side", _record_before),
    "nobody waits for the device before resolving": (
        large_outputs, Resolver, "_written", lambda self, pending, wait=True: True),
    "nobody waits for a small output": (
        fresh_outputs, Resolver, "_written", lambda self, pending, wait=True: True),
    "the event of a small output is recorded before its copy": (
        fresh_outputs, Issuer, "issue_small", _record_before_here),
    "the tensors of a small output are let go at submit": (
        small_output_of_another_stream, Issuer, "issue_small", _forget_sources_here),
    "the result keeps the staging buffer that it gives back": (
        small_outputs_in_turn, SmallCopies, "take", _take_no_copy),
    "borrow takes no snapshot": (
        borrowed_outputs, issue_module, "snapshot", lambda leaf: leaf),
    "on_device runs on the caller's stream": (
        casts_on_device, StreamContext, "__enter__", lambda self: _stay(self)),
    "only the first of several streams is waited for": (
        other_streams, Issuer, "_record_gates", _first_stream_only),
    "drain returns early": (
        drained_outputs, Waiter, "_await_finished", lambda self, waiting, deadline: True),
}  # fmt: skip


def _stay(context: Any) -> None:
    context._device = torch.accelerator.current_device_index()
    context._previous = torch.accelerator.current_stream()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_protection_is_needed(sim: Simulation, mutation: str) -> None:
    scenario, owner, name, wrong = MUTATIONS[mutation]
    with mock.patch.object(owner, name, wrong):
        if mutation.startswith("nobody waits"):
            with mock.patch.object(Resolver, "_await_device", return_value=True):
                found = sim.explore(lambda: scenario(sim), seeds=seeds(20))
        else:
            found = sim.explore(lambda: scenario(sim), seeds=seeds(20))
    seen = [failure for failure in found.failures if "CORRUPT" in str(failure.error)]
    assert seen, f"{mutation}: no schedule of {scenario.__name__} shows wrong bytes: {found}"


def test_submit_never_makes_the_host_wait(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(64, device=NAME) * 2
        before = sim.host_waits_of()
        future = outputs.submit({"image": image, "more": [image[::2], image.reshape(8, 8).t()]})
        assert sim.host_waits_of() == before
        assert future.result(10)["image"].tolist() == [2.0] * 64
        assert outputs.stats().mode == "async"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_layout_survives(sim: Simulation, layout: str) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        for dtype in (dtype for dtype in DTYPES if dtype not in UNSUPPORTED):
            want = bits(make_tensor(dtype, layout, 3))
            leaf = make_tensor(dtype, layout, 3, NAME)
            future = outputs.submit(leaf)
            result = future.result(10)
            assert bits(result) == want, dtype
            assert result.untyped_storage().nbytes() == result.numel() * result.element_size()
            if layout != "empty":
                assert not result.is_pinned(), "small results leave pinned memory"


def test_a_platform_of_none_gives_the_same_results(sim: Simulation) -> None:
    class Bare(OmniPlatform):
        name = "bare"
        device_type = NAME

    sim.reset("lazy")
    with AsyncOutputExecutor(Bare()) as outputs:
        assert outputs.stats().mode == "blocking"
        for layout in LAYOUTS:
            want = bits(make_tensor(torch.complex64, layout, 5))
            leaf = make_tensor(torch.complex64, layout, 5, NAME)
            assert bits(outputs.submit([leaf], borrow=True).result(10)[0]) == want
        doubled = outputs.submit(torch.ones(3, device=NAME), on_device=lambda x: x * 2)
        assert doubled.result(10).tolist() == [2.0] * 3


def test_a_broken_promise_of_pinned_memory_is_loud_and_right(sim: Simulation) -> None:
    class Unpinned(type(sim.platform)):  # type: ignore[misc]
        def pinned_empty(self, shape, dtype):
            return torch.empty(shape, dtype=dtype)

    platform = sim.platform
    with (
        mock.patch.object(type(platform), "pinned_empty", Unpinned.pinned_empty),
        pytest.warns(RuntimeWarning, match="pinned memory"),
    ):
        outputs = AsyncOutputExecutor(platform)
    with outputs:
        assert outputs.stats().mode == "blocking"
        assert not outputs.stats().pinned
        assert outputs.submit(torch.ones(3, device=NAME)).result(10).tolist() == [1.0] * 3


def test_memory_is_free_once_the_copy_is_done_and_not_before(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        image = torch.ones(64, device=NAME)
        alive = weakref.ref(image.untyped_storage())
        tensor_alive = weakref.ref(image)
        future = outputs.submit(image)
        del image
        assert tensor_alive() is not None
        future.result(10)
        gc.collect()
        assert tensor_alive() is None
        del alive


def test_an_error_on_the_device_keeps_its_output_to_itself(sim: Simulation) -> None:
    def culprit(value: torch.Tensor) -> torch.Tensor:
        raise ValueError("mine")

    with AsyncOutputExecutor(sim.platform) as outputs:
        bad = outputs.submit(torch.ones(4, device=NAME), on_device=culprit)
        good = outputs.submit(torch.ones(4, device=NAME))
        with pytest.raises(ValueError, match="mine"):
            bad.result(10)
        assert good.result(10).tolist() == [1.0] * 4


def test_a_tensor_on_another_device_still_arrives(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform, device=0) as outputs:
        other = torch.full((4,), 6.0, device=f"{NAME}:1")
        assert outputs.submit(other).result(10).tolist() == [6.0] * 4
        assert outputs.stats().blocking_leaves == 1


def test_an_executor_on_the_second_device_leaves_the_current_one(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform, device=1) as outputs:
        image = torch.full((4,), 6.0, device=f"{NAME}:1") * 2
        future = outputs.submit(
            image, on_host=lambda value: (torch.accelerator.current_device_index(), value)
        )
        assert torch.accelerator.current_device_index() == 0
        index, value = future.result(10)
        assert (index, value.tolist()) == (1, [12.0] * 4)


def test_a_drain_that_times_out_names_the_phase(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        with mock.patch.object(Resolver, "_written", return_value=False):
            future = outputs.submit(torch.ones(64, device=NAME) * 2)
            with pytest.raises(DrainTimeoutError, match="output 0"):
                outputs.drain(0.05)
        assert future.result(10).tolist() == [2.0] * 64
