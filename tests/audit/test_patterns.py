"""Patterns, values that never change, and what the audit advises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.audit import SyncAudit
from omni_platforms.audit.constancy import UNKNOWN, Constancy
from omni_platforms.audit.idle import busy_spans, idle_caused
from omni_platforms.audit.report import SiteReport
from omni_platforms.platform.cpu import CpuPlatform
from tests.simulated import NAME


def only_site(step: Callable[[int], Any], steps: int = 4, requests: int = 1) -> SiteReport:
    """Return the one site of a loop of `steps` steps for each of `requests` requests."""
    with SyncAudit(CpuPlatform()) as running:
        for number in range(steps * requests):
            running.step(request=number // steps)
            step(number)
    (site,) = running.report().sites
    return site


def test_a_value_that_never_changes_is_hoistable_and_shown() -> None:
    sigma = torch.full((), 0.25)
    site = only_site(lambda number: sigma.item())
    assert (site.hoistable, site.pattern, site.value) == (True, "constant_recomputed", [0.25])
    assert "before the loop" in site.suggestion


def test_a_value_that_changes_is_not_hoistable() -> None:
    sigma = torch.full((), 0.25)
    site = only_site(lambda number: (sigma * number).item())
    assert (site.hoistable, site.pattern, site.value) == (False, "read_each_step", [])


def test_nan_is_equal_to_itself_and_the_report_stays_json() -> None:
    site = only_site(lambda number: torch.full((), float("nan")).item())
    assert (site.hoistable, site.value) == (True, ["nan"])
    assert json.loads(json.dumps(asdict(site), allow_nan=False))["value"] == ["nan"]


def test_a_constant_of_each_request_is_hoistable() -> None:
    site = only_site(lambda number: torch.full((), float(number // 4)).item(), requests=3)
    assert site.hoistable
    # One step a request compares nothing with anything.
    site = only_site(lambda number: torch.full((), 1.0).item(), steps=1, requests=4)
    assert not site.hoistable


def test_a_value_read_in_some_steps_only_is_not_hoistable() -> None:
    sigma = torch.full((), 0.25)
    assert not only_site(lambda number: sigma.item() if number % 2 else None).hoistable


def test_the_same_data_uploaded_each_step_is_hoistable() -> None:
    device = "cpu"
    site = only_site(lambda number: torch.tensor([1.0, 2.0], device=device))
    assert (site.kind, site.hoistable, site.value) == ("tensor_from_host", True, ["[1.0, 2.0]"])
    assert "upload it once" in site.suggestion
    assert not only_site(lambda number: torch.tensor([number], device=device)).hoistable


def test_the_same_contents_copied_out_each_step_are_hoistable() -> None:
    table = torch.arange(3.0)
    site = only_site(lambda number: table.cpu())
    assert (site.hoistable, site.value) == (True, ["shape [3]: [0, 1, 2]"])
    assert not only_site(lambda number: (table + number).cpu()).hoistable


def test_a_read_for_each_position_is_to_be_batched() -> None:
    def step(number: int) -> None:
        ids = torch.arange(6) + number
        for position in range(6):
            ids[position].item()

    site = only_site(step)
    assert (site.pattern, site.per_step) == ("read_per_position", 6.0)
    assert "whole span once" in site.suggestion


def test_a_condition_is_told_from_a_read() -> None:
    site = only_site(lambda number: bool(torch.full((), float(number)) > 2))
    assert site.pattern == "truth_in_condition"


@pytest.mark.parametrize("size", [1, 1 << 15])
def test_pinning_is_never_advised_for_a_few_bytes(size: int) -> None:
    """4 bytes from pageable and from pinned memory took 32.2 and 31.4 us: the wait is the cost."""
    site = only_site(lambda number: (torch.arange(float(size)) + number).cpu())
    assert "pin" not in site.suggestion
    assert ("AsyncOutputExecutor" in site.suggestion) == (size > 1)
    device = "cpu"
    site = only_site(lambda number: torch.tensor([number] * size, device=device), steps=2)
    assert ("pinned" in site.suggestion) == (size > 1)


# Bookkeeping, against a plain model ----------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.sampled_from([1, 2, 3]), max_size=3)), max_size=8
    )
)
def test_constancy_agrees_with_keeping_everything(history: list[tuple[int, list[int]]]) -> None:
    constancy = Constancy()
    for step, (request, reads) in enumerate(history, 1):
        for value in reads:
            constancy.add(step, request, value, value)
    constancy.close()
    requests = {request for request, _ in history}
    alike = all(
        len({tuple(reads) for request, reads in history if request == each}) == 1
        for each in requests
    )
    every_step = all(reads for _, reads in history)
    want = bool(history) and alike and every_step and len(history) > len(requests)
    assert constancy.is_constant(len(history), len(requests)) == want
    assert constancy.largest == max((len(reads) for _, reads in history), default=0)


def test_an_unknown_value_is_never_constant() -> None:
    constancy = Constancy()
    for step in (1, 2, 3):
        constancy.add(step, None, UNKNOWN, 1)
    constancy.close()
    assert not constancy.is_constant(3, 1)


# Idle time, on timelines whose answer is plain ------------------------------------


def test_a_host_bound_loop_idles_the_device_and_a_device_bound_one_does_not() -> None:
    """The same waits: 4 steps that each wait 5 ms; the next work comes 6 ms or 0.01 ms later."""
    for gap, want in ((6.0, 18.0), (0.01, 0.03)):
        work, waits, now = [], [], 0.0
        for number in range(4):
            work.append((now, now + 5.0))
            waits.append((number, (now, now + 5.0)))
            now += 5.0 + gap
        caused = idle_caused(waits, busy_spans(work))
        assert sum(caused.values()) == pytest.approx(want)


def test_a_wait_under_other_work_costs_the_device_nothing() -> None:
    busy = busy_spans([(0.0, 4.0), (2.0, 9.0), (12.0, 13.0)])
    assert busy == [(0.0, 9.0), (12.0, 13.0)]
    assert idle_caused([(1, (0.0, 4.0))], busy) == {1: 0.0}
    # Two waits in one gap: the first causes it. After the last work nothing is idle.
    assert idle_caused([(1, (5.0, 9.5)), (2, (9.6, 10.0)), (3, (13.0, 14.0))], busy) == {
        1: 3.0,
        2: 0.0,
        3: 0.0,
    }


def test_profiling_on_a_device_without_a_trace_knows_no_idle_time(sim) -> None:
    tensor = torch.ones(3, device=NAME)
    with SyncAudit(sim.platform, profile=True) as running:
        for _ in range(2):
            running.step()
            tensor.sum().item()
    report = running.report()
    (site,) = report.sites
    assert (site.count, site.idle_s, report.idle_s) == (2, None, None)
    assert report.runtime_events == {}
    assert report.operators == {"aten._local_scalar_dense.default": 2}
    assert any("idle time" in note for note in report.notes)
