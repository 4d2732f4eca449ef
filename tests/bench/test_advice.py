"""What is recommended, for any machine and any workload."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench.advice import (
    LONE,
    MODE,
    ON_THEIR_WAY,
    TIMEOUT,
    Advice,
    Handover,
    Machine,
    Workload,
    advise,
)

MB, GB = 1 << 20, 1 << 30
PENDING = "AsyncOutputExecutor(max_pending_bytes=)"
INITIAL = "MultiprocExecutor(arena_initial_bytes=)"
CAP = "MultiprocExecutor(arena_cap=)"
H200 = Machine(True, "", 0.4e-9, 100 * GB)

seconds = st.floats(1e-6, 10)
sizes = st.integers(1, 1 << 40)
machines = st.builds(
    Machine, st.booleans(), st.just("no streams"), st.floats(0, 1e-6), st.integers(0, 1 << 42)
)
handovers = st.builds(Handover, sizes, seconds, seconds, seconds, seconds, sizes, sizes)
workloads = st.builds(Workload, seconds | st.floats(10, 1e5), st.integers(1, 64))


def image(
    copy_s: float = 0.23e-3, blocking_s: float = 0.94e-3, lone_s: float = 0.45e-3
) -> Handover:
    """Return an image of 12.6 MB as an H200 hands it over."""
    return Handover(12_582_912, copy_s, blocking_s, 40e-6, lone_s, 16 * MB, 12_582_912)


def worthwhile(handover: Handover, workload: Workload) -> Handover:
    """Return the same with a blocking copy that is worth getting rid of."""
    others = workload.forward_s + handover.submit_s + handover.copy_s
    return replace(handover, blocking_s=2 * others)


def values(advice: Advice) -> dict[str, object]:
    return {setting.name: setting.value for setting in advice.settings}


@given(machines, handovers, workloads)
def test_advice_is_whole_whatever_was_measured(
    machine: Machine, handover: Handover, workload: Workload
) -> None:
    advice = advise(machine, handover, workload)
    json.dumps(advice.as_dict(), allow_nan=False)
    names = [setting.name for setting in advice.settings]
    assert len(set(names)) == len(names)
    assert names[0] == MODE
    assert all(setting.reason for setting in advice.settings)
    assert advice.bother == (values(advice)[MODE] == "async") == (len(names) > 1)
    assert all(value > 0 for value in values(advice).values() if isinstance(value, int))


@given(handovers, workloads)
def test_nothing_is_promised_where_copies_cannot_be_overlapped(
    handover: Handover, workload: Workload
) -> None:
    advice = advise(Machine(False, "no side streams", 0, GB), handover, workload)
    assert not advice.bother
    assert advice.async_s == advice.blocking_s
    assert "no side streams" in advice.settings[0].reason


@given(machines, handovers, workloads)
def test_nobody_is_told_to_change_for_less_than_it_is_worth(
    machine: Machine, handover: Handover, workload: Workload
) -> None:
    advice = advise(machine, handover, workload)
    saved = advice.blocking_s - advice.async_s
    assert advice.bother == (machine.asynchronous and saved / advice.blocking_s >= 0.02) or (
        abs(saved / advice.blocking_s - 0.02) < 1e-9
    )


@given(handovers, workloads)
def test_a_queue_is_never_faster_than_the_forward_or_the_copy(
    handover: Handover, workload: Workload
) -> None:
    advice = advise(H200, handover, workload)
    assert advice.async_s >= max(workload.forward_s, handover.copy_s)


@given(machines, handovers, workloads)
def test_memory_is_for_whole_outputs_within_a_quarter_or_for_one(
    machine: Machine, handover: Handover, workload: Workload
) -> None:
    machine = replace(machine, asynchronous=True)
    found = values(advise(machine, worthwhile(handover, workload), workload))
    for name, each, most in (
        (PENDING, handover.pinned_bytes, workload.in_flight),
        (INITIAL, handover.block_bytes, workload.in_flight + ON_THEIR_WAY),
    ):
        nbytes = found[name]
        assert isinstance(nbytes, int)
        count, rest = divmod(nbytes, each)
        assert rest == 0
        assert 1 <= count <= most
        fits = machine.memory_left // 4 // each
        assert count == max(1, min(most, fits))
    assert (CAP in found) == (handover.block_bytes > machine.memory_left // 4)


@given(handovers, st.floats(1e-3, 1e5))
def test_the_time_limit_is_ten_forwards_or_the_default(
    handover: Handover, forward_s: float
) -> None:
    workload = Workload(forward_s)
    limit = values(advise(H200, worthwhile(handover, workload), workload))[TIMEOUT]
    assert (limit is None) == (10 * forward_s <= 600)
    assert limit is None or abs(int(str(limit)) - 10 * forward_s) <= 0.5


def test_an_image_behind_a_short_forward_is_worth_it() -> None:
    advice = advise(H200, image(), Workload(0.002))
    assert values(advice) == {
        MODE: "async",
        LONE: "async",
        PENDING: 8 * 16 * MB,
        INITIAL: 12 * 12_582_912,
        "MultiprocExecutor(arena_segment_bytes=)": 12 * 12_582_912,
        TIMEOUT: None,
    }
    assert 0.25 < advice.gain < 0.35


def test_an_image_behind_a_long_forward_is_not() -> None:
    advice = advise(H200, image(), Workload(0.1))
    assert values(advice) == {MODE: "sync"}
    assert "do not bother" in advice.settings[0].reason


def test_the_limit_is_named_where_it_is_the_copy() -> None:
    clip = Handover(154_140_672, 2.9e-3, 0.122, 60e-6, 3.2e-3, 256 * MB, 154_140_672)
    mode = advise(H200, clip, Workload(0.002)).settings[0]
    assert "the bare copy of 2.90 ms is the limit" in mode.reason
    assert (
        "60.0 us on the launching thread" in advise(H200, clip, Workload(0.01)).settings[0].reason
    )


def test_a_lone_request_that_loses_is_kept_blocking() -> None:
    found = values(advise(H200, image(lone_s=0.96e-3), Workload(0.002)))
    assert found[LONE] == "async"
    found = values(advise(H200, image(lone_s=0.98e-3), Workload(0.002)))
    assert found[LONE] == "sync"
