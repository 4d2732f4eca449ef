"""Whose waits are counted: threads, tasks, nested audits, allowed regions, exceptions."""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from omni_platforms import audit
from omni_platforms.audit import SyncAudit, allow_sync
from omni_platforms.errors import AuditError
from omni_platforms.platform.cpu import CpuPlatform


@pytest.fixture
def found() -> Iterator[SyncAudit]:
    with SyncAudit(CpuPlatform()) as running:
        yield running


def device_tensor() -> torch.Tensor:
    return torch.arange(4.0)


def counts(running: SyncAudit) -> dict[str, int]:
    return {site.kind: site.count for site in running.report().sites}


def test_nothing_is_left_behind() -> None:
    names = ("to", "cpu", "tolist", "numpy", "copy_", "__bool__", "__repr__", "__format__")
    before = [torch.Tensor.__dict__.get(name) for name in names]
    methods = torch.Event.synchronize, torch.Stream.synchronize, torch.tensor, torch.cpu.synchronize
    with SyncAudit(CpuPlatform()):
        assert torch.Event.synchronize is not methods[0]
        assert torch.Tensor.__dict__.get("__bool__") is not before[5]
    assert [torch.Tensor.__dict__.get(name) for name in names] == before
    after = torch.Event.synchronize, torch.Stream.synchronize, torch.tensor, torch.cpu.synchronize
    assert after == methods
    tensor = device_tensor()
    assert tensor.cpu() is tensor
    assert bool(tensor.sum() > 0)


def test_other_threads_are_not_audited(found: SyncAudit) -> None:
    tensor = device_tensor()

    def other() -> None:
        for _ in range(5):
            tensor.sum().item()
            bool(tensor.any())

    thread = threading.Thread(target=other)
    thread.start()
    tensor.sum().item()
    thread.join()
    assert counts(found) == {"scalar_read": 1}


def test_each_thread_has_its_own_audit(found: SyncAudit) -> None:
    tensor, theirs = device_tensor(), {}

    def other() -> None:
        with SyncAudit(CpuPlatform()) as running:
            tensor.tolist()
        theirs.update(counts(running))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    tensor.sum().item()
    assert counts(found) == {"scalar_read": 1}
    assert theirs == {"tolist": 1}


def test_nested_audits_each_take_what_is_inside_them(found: SyncAudit) -> None:
    tensor = device_tensor()
    tensor.sum().item()
    with SyncAudit(CpuPlatform()) as inner:
        tensor.sum().item()
    tensor.sum().item()
    assert inner.report().count == 1
    assert found.report().count == 3


def test_an_exception_ends_the_audit_and_keeps_what_it_saw() -> None:
    def fails() -> None:
        with running:
            running.step()
            raise ZeroDivisionError(device_tensor().sum().item())

    running = SyncAudit(CpuPlatform())
    with pytest.raises(ZeroDivisionError):
        fails()
    assert running.report().count == 1
    assert audit.step().__class__.__name__ == "nullcontext"  # nobody is auditing


def test_a_call_that_raises_leaves_the_audit_working(found: SyncAudit) -> None:
    with pytest.raises(RuntimeError):
        device_tensor().item()  # four elements
    with pytest.raises((RuntimeError, TypeError)):
        torch.tensor("no numbers")
    device_tensor().sum().item()
    assert counts(found)["scalar_read"] == 1


def test_waits_inside_an_allowed_region_are_listed_with_the_reason(found: SyncAudit) -> None:
    tensor = device_tensor()

    @allow_sync(reason="fails")
    def fails() -> None:
        raise ZeroDivisionError

    with allow_sync(reason="the end"):
        tensor.sum().item()
        with allow_sync(reason="inner"):
            tensor.tolist()
        with pytest.raises(ZeroDivisionError):
            fails()
        tensor.sum().item()
    bool(tensor.any())
    report = found.report()
    assert [(site.kind, site.allowed) for site in report.sites] == [("truth_value", None)]
    allowed = sorted((site.kind, site.allowed) for site in report.allowed)
    assert allowed == [("scalar_read", "the end")] * 2 + [("tolist", "inner")]
    assert report.count == 1


def test_decorated_functions_may_wait(found: SyncAudit) -> None:
    tensor = device_tensor()

    @allow_sync(reason="recursion ends")
    def countdown(n: int) -> float:
        return countdown(n - 1) if n else tensor.sum().item()

    @allow_sync(reason="awaited")
    async def later() -> float:
        await asyncio.sleep(0)
        return tensor.sum().item()

    assert countdown(3) == asyncio.run(later()) == 6.0
    assert found.report().count == 0
    assert {site.allowed for site in found.report().allowed} == {"recursion ends", "awaited"}
    with pytest.raises(TypeError, match="generator"):
        allow_sync(reason="no")(device_generator)
    with pytest.raises(ValueError, match="reason"):
        allow_sync(reason=" ")


def device_generator() -> Iterator[Any]:
    yield device_tensor().sum().item()


def test_an_allowed_region_holds_for_its_task_and_for_no_other(found: SyncAudit) -> None:
    tensor = device_tensor()

    async def allowed(gate: asyncio.Event, other: asyncio.Event) -> None:
        with allow_sync(reason="this task"):
            gate.set()
            await other.wait()
            tensor.sum().item()

    async def strict(gate: asyncio.Event, other: asyncio.Event) -> None:
        await gate.wait()  # the other task is inside its region now
        tensor.tolist()
        other.set()

    async def both() -> None:
        gate, other = asyncio.Event(), asyncio.Event()
        await asyncio.gather(allowed(gate, other), strict(gate, other))

    asyncio.run(both())
    assert counts(found) == {"tolist": 1}
    assert [site.kind for site in found.report().allowed] == ["scalar_read"]


def test_catching_warnings_hides_nothing(found: SyncAudit) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        device_tensor().sum().item()
    assert not caught
    assert counts(found) == {"scalar_read": 1}


def test_steps_are_counted_with_and_without_blocks() -> None:
    tensor = device_tensor()
    with SyncAudit(CpuPlatform()) as running:
        tensor.sum().item()  # outside all steps
        audit.step()
        tensor.sum().item()
        with running.step():
            tensor.sum().item()
        tensor.sum().item()  # after the end of the last step
    report = running.report()
    assert report.steps == 2
    assert sum(site.count for site in report.sites) == 4
    assert sum(site.per_step or 0 for site in report.sites) == 1.0
    assert report.step_s is not None
    assert report.step_s.shortest <= report.step_s.median <= report.step_s.longest


def test_a_compiled_function_still_runs_and_its_waits_are_seen(found: SyncAudit) -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(), fullgraph=True)
    assert compiled(device_tensor()).item() == 12.0
    assert counts(found) == {"scalar_read": 1}


def test_wrong_use_is_refused(found: SyncAudit) -> None:
    with pytest.raises(AuditError, match="once"):
        found.__enter__()
    with pytest.raises(AuditError, match="share"), SyncAudit(CpuPlatform(), detail="full"):
        pass
    with pytest.raises(AuditError, match="not begun"):
        SyncAudit(CpuPlatform()).report()
    with pytest.raises(ValueError, match="detail"):
        SyncAudit(CpuPlatform(), detail="all")  # type: ignore[arg-type]
    refused: list[AuditError] = []

    def elsewhere() -> None:
        try:
            found.__exit__(None, None, None)
        except AuditError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "thread" in str(refused[0])
    device_tensor().sum().item()
    assert found.report().count == 1


def test_fake_tensors_are_no_device_tensors(found: SyncAudit) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.empty(3).to("cpu").cpu()
    torch.empty(3, device="meta").to(torch.float16)
    assert counts(found) == {}


def test_a_library_in_the_place_of_print_is_not_the_users_line(
    found: SyncAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(value: Any) -> None:
        sys.stdout.write(str(value))

    monkeypatch.setattr(builtins, "print", shown)
    print(device_tensor())
    monkeypatch.undo()
    (site,) = found.report().sites
    assert (site.kind, site.source) == ("print", "print(device_tensor())")
