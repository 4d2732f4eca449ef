"""Which settings suit a workload on a machine that was measured. Pure.

The model behind it is that of the benchmark `pipeline`, and as simple: with blocking copies a
request takes its forward and the copy; with an executor and a queue it takes the longer of the
forward, with what `submit` costs the launching thread, and the copy alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from omni_platforms.bench.units import bytes_text, seconds_text

WORTHWHILE = 0.02
"""Less of a request's time than this is not worth a change to an engine."""
LONE_LOSS = 0.01
"""What a lone request may lose against a blocking copy."""

MODE = "omni-platforms run --mode"
LONE = "one request at a time"
TIMEOUT = "OMNI_ASYNC_OUTPUT_TIMEOUT"
BY_FORWARD = (MODE, LONE, TIMEOUT)
"""The settings that depend on the forward; the others depend on the output."""

ON_THEIR_WAY = 4
"""Outputs that a worker process of the engine hands over at once (docs/engine.md)."""

_MEMORY_SHARE = 4  # as the arena's default cap: a quarter of what is left
_DEFAULT_OUTPUT_TIMEOUT_S = 600.0
_TIMEOUT_REQUESTS = 10


@dataclass(frozen=True)
class Machine:
    """What was measured whatever the output is. `reason` says why it is not `asynchronous`.

    `arena_s_per_byte` is what shared memory costs when it is made and registered;
    `memory_left` is what the host and the control group have, in bytes.
    """

    asynchronous: bool
    reason: str
    arena_s_per_byte: float
    memory_left: int


@dataclass(frozen=True)
class Handover:
    """What handing one output over costs, in seconds; sizes in bytes.

    `copy_s` is a bare copy to pinned memory, `blocking_s` a blocking `.cpu()`, `submit_s` the
    calling thread's part of an executor's way, and `lone_s` all of it when nothing else goes on.
    `pinned_bytes` and `block_bytes` are what an allocation and a block of that size really take.
    """

    output_bytes: int
    copy_s: float
    blocking_s: float
    submit_s: float
    lone_s: float
    pinned_bytes: int
    block_bytes: int


@dataclass(frozen=True)
class Workload:
    """Forwards of `forward_s` seconds, at most `in_flight` requests started and not read."""

    forward_s: float
    in_flight: int = 8


@dataclass(frozen=True)
class Setting:
    """One line of advice. `value` is what to write, `None` where the default is right."""

    name: str
    value: str | int | None
    reason: str


@dataclass(frozen=True)
class Advice:
    """What to do about one workload. Times are seconds a request; `gain` is the share saved."""

    forward_s: float
    output_bytes: int
    blocking_s: float
    async_s: float
    gain: float
    bother: bool
    settings: tuple[Setting, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


def advise(machine: Machine, handover: Handover, workload: Workload) -> Advice:
    """Return the advice for one workload."""
    forward = workload.forward_s
    blocking = forward + handover.blocking_s
    queued = max(forward + handover.submit_s, handover.copy_s)
    gain = 1 - queued / blocking if machine.asynchronous else 0.0
    bother = gain >= WORTHWHILE
    settings = [_mode(machine, handover, workload, bother, gain)]
    if bother:
        settings += [
            _lone_requests(handover, workload),
            _max_pending_bytes(machine, handover, workload),
            *_arena(machine, handover, workload),
            _output_timeout(workload),
        ]
    return Advice(
        forward_s=forward,
        output_bytes=handover.output_bytes,
        blocking_s=blocking,
        async_s=queued if machine.asynchronous else blocking,
        gain=gain,
        bother=bother,
        settings=tuple(settings),
    )


def _mode(
    machine: Machine, handover: Handover, workload: Workload, bother: bool, gain: float
) -> Setting:
    if not machine.asynchronous:
        return Setting(MODE, "sync", f"copies cannot be overlapped here: {machine.reason}")
    forward = seconds_text(workload.forward_s)
    blocking = f"{seconds_text(handover.blocking_s)} of a blocking copy"
    if not bother:
        return Setting(
            MODE,
            "sync",
            f"do not bother: with {blocking} behind {forward} of forward an executor would "
            f"change a request's time by {-gain:+.1%}",
        )
    if handover.copy_s > workload.forward_s + handover.submit_s:
        limit = f"; the bare copy of {seconds_text(handover.copy_s)} is the limit then"
    else:
        limit = f"; {seconds_text(handover.submit_s)} on the launching thread stay"
    return Setting(
        MODE, "async", f"{blocking} behind {forward} of forward go: {gain:.1%} less{limit}"
    )


def _lone_requests(handover: Handover, workload: Workload) -> Setting:
    blocking = workload.forward_s + handover.blocking_s
    change = (workload.forward_s + handover.lone_s) / blocking - 1
    if change <= LONE_LOSS:
        return Setting(LONE, "async", f"it takes {change:+.1%} of the time with a blocking copy")
    return Setting(
        LONE,
        "sync",
        f"a lone request takes {change:+.1%} with an executor: use it where requests queue",
    )


def _max_pending_bytes(machine: Machine, handover: Handover, workload: Workload) -> Setting:
    name = "AsyncOutputExecutor(max_pending_bytes=)"
    each = f"{bytes_text(handover.pinned_bytes)} of pinned memory an output"
    share = machine.memory_left // _MEMORY_SHARE
    wanted = workload.in_flight * handover.pinned_bytes
    if wanted <= share:
        return Setting(name, wanted, f"{workload.in_flight} requests in flight, {each}")
    fitting = max(1, share // handover.pinned_bytes)
    return Setting(
        name,
        fitting * handover.pinned_bytes,
        f"{workload.in_flight} requests in flight, {each}, would take more than a quarter of "
        f"the {bytes_text(machine.memory_left)} that are left: {fitting} fit, and submit waits for "
        "room",
    )


def _arena(machine: Machine, handover: Handover, workload: Workload) -> list[Setting]:
    held = ON_THEIR_WAY + workload.in_flight
    share = machine.memory_left // _MEMORY_SHARE
    wanted = held * handover.block_bytes
    fitting = max(1, min(held, share // handover.block_bytes))
    initial = fitting * handover.block_bytes
    takes = seconds_text(initial * machine.arena_s_per_byte)
    why = (
        f"{ON_THEIR_WAY} outputs on their way and {workload.in_flight} with the consumer, "
        f"{bytes_text(handover.block_bytes)} each"
    )
    if wanted > share:
        why += f", do not fit into a quarter of the memory that is left: {fitting} do"
    one = seconds_text(handover.block_bytes * machine.arena_s_per_byte)
    settings = [
        Setting(
            "MultiprocExecutor(arena_initial_bytes=)",
            initial,
            f"{why}; it takes {takes} at the start, and not {one} an output under a request",
        ),
        Setting(
            "MultiprocExecutor(arena_segment_bytes=)",
            initial,
            "one segment: blocks of any size fit between each other",
        ),
    ]
    if initial > share:
        settings.append(
            Setting(
                "MultiprocExecutor(arena_cap=)",
                initial,
                "one output is more than the default cap, a quarter of the memory that is left",
            )
        )
    return settings


def _output_timeout(workload: Workload) -> Setting:
    wanted = _TIMEOUT_REQUESTS * workload.forward_s
    if wanted <= _DEFAULT_OUTPUT_TIMEOUT_S:
        return Setting(TIMEOUT, None, "the default of 600 s is ten times a forward and more")
    return Setting(TIMEOUT, round(wanted), "ten times a forward; the default is 600 s")
