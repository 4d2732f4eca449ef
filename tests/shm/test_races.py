"""The arena on a simulated accelerator under adversarial schedules.

Every protection is removed once, in a table of mutations, and the named
scenario must turn red.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import ArenaFullError, HostRegistrationError
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import Arena, ArenaView
from omni_platforms.shm.blocks import Blocks
from omni_platforms.shm.issue import Issuer
from omni_platforms.shm.packing import Packing, Retired
from omni_platforms.shm.registered import WritableSegment
from omni_platforms.shm.writing import Writer
from omni_platforms.simulator import Simulation
from tests.shm.conftest import connected

Scenario = Callable[[Simulation], None]
N = 9000


def made(value: float) -> torch.Tensor:
    return torch.full((N,), value, device="sim") * 2


def fresh_outputs(sim: Simulation) -> None:
    """Each output is computed, started, dropped, and its memory used again at once."""
    with connected(sim.platform) as (arena, view):
        packings = []
        for i in range(3):
            image = made(i)
            packings.append(arena.start({"image": image, "small": image[:5], "step": i}))
            del image
            made(99.0)
        for i, packing in enumerate(packings):
            got = view.unpack(packing.wait(10))
            assert got["image"].eq(2.0 * i).all(), "CORRUPT"
            assert got["small"].eq(2.0 * i).all(), "CORRUPT"


def staged_outputs(sim: Simulation) -> None:
    """As `fresh_outputs`, where the device does not register memory."""
    with mock.patch.object(type(sim.platform), "register_host_memory", return_value=None):
        fresh_outputs(sim)


def dropped_outputs(sim: Simulation) -> None:
    """Blocks of outputs that nobody wants any more serve again: for the host, at once."""
    with connected(sim.platform, cap=1 << 20) as (arena, view):
        for i in range(8):
            image = made(i)
            packing = arena.start([image] * 2 + [image[:]])
            packing.drop()
            del packing, image
            kept = view.unpack(arena.pack(torch.full((N,), 7.0)))
            torch.accelerator.synchronize()
            assert kept.eq(7.0).all(), "CORRUPT"
            del kept


def _failing(write: Any, at: int) -> Any:
    """Return a `Writer.write` whose call number `at` fails."""
    calls = []

    def fail(self: Writer, *args: Any) -> None:
        calls.append(args)
        if len(calls) == at:
            raise RuntimeError("planted")
        write(self, *args)

    return fail


def failed_outputs(sim: Simulation) -> None:
    """As `dropped_outputs`, for outputs whose second leaf fails when the first is under way."""
    with connected(sim.platform, cap=1 << 20) as (arena, view):
        for i in range(4):
            image = made(i)

            write = Writer.write
            with (
                mock.patch.object(Writer, "write", _failing(write, at=2)),
                pytest.raises(RuntimeError),
            ):
                arena.start([image, image[:]])
            del image
            made(99.0)
            kept = view.unpack(arena.pack(torch.full((N,), 7.0)))
            torch.accelerator.synchronize()
            assert kept.eq(7.0).all(), "CORRUPT"


def output_of_another_stream(sim: Simulation) -> None:
    """The work is enqueued on a stream that is not current when the output is started."""
    platform = sim.platform
    producer = platform.create_side_stream()
    with connected(platform) as (arena, view):
        with platform.stream_context(producer):
            image = made(3.0)
        event = platform.record_device_event(producer)
        assert event is not None
        packing = arena.start(image, after=[event])
        del image
        with platform.stream_context(producer):
            made(99.0)
        assert view.unpack(packing.wait(10)).eq(6.0).all(), "CORRUPT"


def announced_outputs(sim: Simulation) -> None:
    """The consumer unpacks before the device has finished, and reads when it has."""
    with connected(sim.platform) as (arena, view):
        waiting = []
        for i in range(3):
            image = made(i)
            packing = arena.start([image, image[:], i])
            packet = packing.announce()
            assert packet is not None
            waiting.append((packing, view.unpack(packet)))
            del image, packet
            made(99.0)
        for packing, got in waiting:
            packing.wait(10)
            assert got[0].eq(2.0 * got[2]).all(), "CORRUPT"
            assert got[1].eq(2.0 * got[2]).all(), "CORRUPT"


def announced_and_dropped(sim: Simulation) -> None:
    """The consumer gives announced blocks back at once; they serve again for the host."""
    with connected(sim.platform, cap=1 << 20) as (arena, view):
        for i in range(8):
            image = made(i)
            packing = arena.start([image, image[:]])
            packet = packing.announce()
            assert packet is not None
            view.discard(packet)
            del packing, image, packet
            kept = view.unpack(arena.pack(torch.full((N,), 7.0)))
            torch.accelerator.synchronize()
            assert kept.eq(7.0).all(), "CORRUPT"
            del kept


def announced_and_closed(sim: Simulation) -> None:
    """As `closed_arena`, for an output that was announced."""
    with connected(sim.platform) as (arena, view):
        packing = arena.start(made(1.0))
        packet = packing.announce()
        assert packet is not None
        view.discard(packet)
        try:
            arena.close()
        except HostRegistrationError as error:
            torch.accelerator.synchronize()
            arena._blocks.release()
            raise AssertionError("CORRUPT") from error
        del packing


def closed_arena(sim: Simulation) -> None:
    """Memory is unregistered and unmapped only when the device has finished with it."""
    with connected(sim.platform) as (arena, _):
        packing = arena.start(made(1.0))
        try:
            arena.close()
        except HostRegistrationError as error:
            torch.accelerator.synchronize()
            arena._blocks.release()
            raise AssertionError("CORRUPT") from error
        del packing


def trimmed_arena(sim: Simulation) -> None:
    """Segments are given back, or taken for a larger leaf, when the device has finished them."""
    with connected(sim.platform, cap=3 << 20) as (arena, view):
        arena.start(made(1.0)).drop()
        packing = arena.start(made(2.0))
        packet = packing.announce()
        assert packet is not None
        view.discard(packet)
        try:
            arena.trim()
            arena.reserve(3 << 20)
            large = arena.start(torch.full(((3 << 20) // 4,), 3.0, device="sim"))
        except HostRegistrationError as error:
            torch.accelerator.synchronize()
            arena._blocks.release()
            raise AssertionError("CORRUPT") from error
        except ArenaFullError:  # the device was still writing: nothing was taken away
            torch.accelerator.synchronize()
            return
        assert view.unpack(large.wait(10)).eq(3.0).all(), "CORRUPT"
        del packing


def outputs_of_many_kinds(sim: Simulation) -> None:
    """The same block serves outputs of other types and shapes, each with its own bits."""
    kinds = [(torch.float32, (N,)), (torch.int32, (N,)), (torch.float32, (90, 100)),
             (torch.bfloat16, (2 * N,)), (torch.int32, (100, 90))]  # fmt: skip
    with connected(sim.platform, cap=1 << 20) as (arena, view):
        for value, (dtype, shape) in enumerate(kinds * 2):
            image = torch.full(shape, value, dtype=dtype, device="sim") * 2
            got = view.unpack(arena.pack(image))
            right = (got.dtype, got.shape) == (dtype, shape) and bool(got.eq(2 * value).all())
            assert right, "CORRUPT"
            del got


SCENARIOS = [
    fresh_outputs, staged_outputs, dropped_outputs, failed_outputs, output_of_another_stream,
    closed_arena, announced_outputs, announced_and_dropped, announced_and_closed,
    trimmed_arena, outputs_of_many_kinds,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_no_schedule_corrupts_an_output(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(sim), seeds=25)
    assert found.ok, str(found)


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _forget_sources(self: Any, *args: Any) -> None:
    _issue(self, *args)
    args[0].writer._alive.clear()


def _record_before(self: Any, packing: Any, *args: Any) -> None:
    early = self._platform.record_device_event(self._side)
    _issue(self, packing, *args)
    packing.done = early


def _written_always(self: Any) -> bool:
    return True


def _stage_and_read(self: Any, *args: Any) -> bool:
    done = _stage(self, *args)
    for staging, part in self._staged:
        part.copy_(staging)
    self._staged.clear()
    return done


def _lend_only(self: Blocks, written_later: Retired) -> None:
    self.lend(written_later.blocks)


def _whatever_was_there(
    self: WritableSegment, offset: int, nbytes: int, dtype: Any, shape: Any
) -> Any:
    made = self._made.get(offset)
    if made is None or made.numel() != shape.numel():
        made = self._made[offset] = self.parts(offset, nbytes)[0].view(dtype).view(shape)
    return made.view(shape)


_issue = Issuer.issue
_stage = Writer._stage

MUTATIONS: dict[str, tuple[Scenario, Any, str, Any]] = {
    "the side stream does not wait for the work": (
        fresh_outputs, OmniPlatform, "stream_wait_event", nothing),
    "the side stream does not wait for the given events": (
        output_of_another_stream, OmniPlatform, "stream_wait_event", nothing),
    "the device tensors are let go at once": (
        output_of_another_stream, Issuer, "issue", _forget_sources),
    "the completion event is recorded before the copies": (
        fresh_outputs, Issuer, "issue", _record_before),
    "the packet is made before the device has finished": (
        fresh_outputs, "platform", "synchronize_event", lambda self, event, timeout=None: True),
    "a staging buffer is read before the device has finished": (
        staged_outputs, Writer, "_stage", _stage_and_read),
    "a dropped block is free before the device has finished": (
        dropped_outputs, Retired, "is_written", _written_always),
    "the block of a failed output is free before the device has finished": (
        failed_outputs, Retired, "is_written", _written_always),
    "an announced output is read before the device has finished": (
        announced_outputs, Packing, "wait", nothing),
    "an announced block is free when the consumer wants it no more": (
        announced_and_dropped, Blocks, "announce", _lend_only),
    "the arena closes while the device writes an announced block": (
        announced_and_closed, "platform", "synchronize_event",
        lambda self, event, timeout=None: True),
    "a view of a block that serves again is taken for what it was": (
        outputs_of_many_kinds, WritableSegment, "like", _whatever_was_there),
    "a segment is given back while the device writes it": (
        trimmed_arena, Retired, "is_written", _written_always),
    "a segment is given back while the device writes an announced block": (
        trimmed_arena, Blocks, "announce", _lend_only),
    "the arena does not wait for the device when it closes": (
        closed_arena, "platform", "synchronize_event", lambda self, event, timeout=None: True),
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_protection_is_needed(sim: Simulation, mutation: str) -> None:
    scenario, owner, name, wrong = MUTATIONS[mutation]
    target = type(sim.platform) if owner == "platform" else owner
    with mock.patch.object(target, name, wrong):
        found = sim.explore(lambda: scenario(sim), seeds=10)
    seen = [failure for failure in found.failures if "CORRUPT" in str(failure.error)]
    assert seen, f"{mutation}: no schedule of {scenario.__name__} shows it: {found}"


def test_letting_go_of_a_packing_waits_for_the_device_too(sim: Simulation) -> None:
    sim.reset("lazy")
    with connected(sim.platform) as (arena, _):
        arena.start(made(1.0))
        assert arena.stats().retired == 1
        torch.accelerator.synchronize()
        assert arena.stats().retired == 0


def test_an_announced_output_keeps_its_device_tensors_until_the_device_has_read_them(
    sim: Simulation,
) -> None:
    sim.reset("lazy")
    with connected(sim.platform) as (arena, view):
        image = made(1.0)
        alive = weakref.ref(image)
        packing = arena.start([image])
        packet = packing.announce()
        assert packet is not None
        got = view.unpack(packet)
        del image, packing
        assert alive() is not None, "nobody waited, and the device has not read it"
        assert (arena.stats().lent, arena.stats().retired) == (1, 0)
        torch.accelerator.synchronize()
        assert (arena.stats().lent, arena.stats().retired) == (1, 0)
        assert alive() is None
        assert got[0].eq(2).all()
        del got
        assert arena.stats().used_bytes == 0


def test_waiting_lets_the_device_tensors_of_an_announced_output_go(sim: Simulation) -> None:
    with connected(sim.platform) as (arena, view):
        image = made(1.0)
        alive = weakref.ref(image)
        packing = arena.start(image)
        packet = packing.announce()
        assert packet is not None
        got = view.unpack(packet)
        del image
        assert packing.wait(10) is packet
        assert packing.announce() is packet
        assert alive() is None
        packing.drop()
        assert arena.stats().lent == 1, "what was announced is the consumer's"
        assert got.eq(2).all()


class Summed:
    """An object that looks at its tensor when it is rebuilt."""

    def __init__(self, image: torch.Tensor) -> None:
        self.image = image

    def __getstate__(self) -> Any:
        return self.image

    def __setstate__(self, image: torch.Tensor) -> None:
        self.image, self.total = image, float(image.sum())


def test_what_the_host_still_copies_is_not_announced(sim: Simulation) -> None:
    def not_announced(output: Any) -> Any:
        with connected(sim.platform) as (arena, view):
            packing = arena.start(output)
            assert packing.announce() is None
            return view.unpack(packing.wait(10))

    assert not_announced([made(1.0), made(1.0)[:5]])[1].eq(2).all(), "a small leaf"
    of_its_own = not_announced({"image": Summed(made(1.0))})["image"]
    assert of_its_own.total == 2.0 * N, "an object that reads its leaves when it is made"
    with mock.patch.object(type(sim.platform), "register_host_memory", return_value=None):
        assert not_announced(made(1.0)).eq(2).all(), "staging"


def test_blocking_copies_are_announced_when_they_are_done(pair: tuple[Arena, ArenaView]) -> None:
    arena, view = pair
    packing = arena.start([torch.ones(N), torch.ones(3)])
    packet = packing.announce()
    assert packet is not None
    assert view.unpack(packet)[1].tolist() == [1.0] * 3
    assert packing.wait() is packet


def test_a_dropped_output_is_not_announced(pair: tuple[Arena, ArenaView]) -> None:
    packing = pair[0].start(torch.ones(N))
    packing.drop()
    assert packing.announce() is None
