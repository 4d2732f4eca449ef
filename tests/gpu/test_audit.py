"""On a real NVIDIA GPU: the audit's counts against the profiler's, idle time against blocked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_platforms.audit import AuditReport, SyncAudit, step
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.selection import current_platform, reset_platform
from tests.audit import checks, toy_loop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.version.cuda is None or not torch.cuda.is_available(), reason="gpu: no NVIDIA GPU"
    ),
]

STREAM, EVENT, DEVICE = "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize"
STEPS = 5


@pytest.fixture(scope="module")
def platform():
    reset_platform()
    yield current_platform()
    reset_platform()


def upload(x: torch.Tensor) -> None:
    torch.tensor([1.0, 2.0], device=x.device)


# What a step does, the kind it is, and which call of the runtime it comes to.
CASES: dict[str, tuple[Callable[[torch.Tensor], Any], str, str]] = {
    "item": (lambda x: x[0].item(), "scalar_read", STREAM),
    "slice": (lambda x: x[: x.argmax()], "scalar_read", STREAM),
    "bool": (lambda x: bool((x > 99).any()), "truth_value", STREAM),
    "equal": (lambda x: torch.equal(x, x + 1), "truth_value", STREAM),
    "cpu": (lambda x: x.cpu(), "cpu", STREAM),
    "to": (lambda x: x.to("cpu", torch.float16), "to_cpu", STREAM),
    "tolist": (lambda x: x.tolist(), "tolist", STREAM),
    "numpy": (lambda x: x.numpy(force=True), "numpy", STREAM),
    "format": (lambda x: f"{x.sum()}", "print", STREAM),
    "print": (lambda x: repr(x.int()), "print", STREAM),
    "print_float": (lambda x: repr(x), "print", STREAM),
    "nonzero": (lambda x: x.nonzero(), "nonzero", STREAM),
    "where": (lambda x: torch.where(x > 1), "nonzero", STREAM),
    "mask": (lambda x: x[x > 1], "mask_index", STREAM),
    "masked_select": (lambda x: torch.masked_select(x, x > 1), "masked_select", STREAM),
    "repeat_interleave": (
        lambda x: torch.repeat_interleave(x.long().abs()),
        "repeat_interleave",
        STREAM,
    ),
    "bincount": (lambda x: torch.bincount(x.long().abs()), "data_shape", STREAM),
    "tensor": (upload, "tensor_from_host", STREAM),
    "h2d": (lambda x: torch.ones(4).to(x.device), "h2d_pageable", STREAM),
    "h2d_pinned": (lambda x: x.copy_(torch.ones(8).pin_memory()), "h2d_blocking", STREAM),
    "d2h": (lambda x: torch.empty(8).copy_(x), "d2h_blocking", STREAM),
    "d2h_half": (lambda x: torch.empty(8).half().copy_(x), "d2h_blocking", STREAM),
    "index": (lambda x: x[torch.tensor([0, 1])], "operator_copy", STREAM),
    "stream": (lambda x: torch.cuda.current_stream().synchronize(), "stream_synchronize", STREAM),
    "generic_stream": (
        lambda x: torch.accelerator.current_stream().synchronize(),
        "stream_synchronize",
        STREAM,
    ),
    "device": (lambda x: torch.cuda.synchronize(), "device_synchronize", DEVICE),
}


def profiled(run: Callable[[], None]) -> Counter[str]:
    """Return how often the runtime was called and numbers were read, without an audit."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
    return Counter(event.name for event in profile.events())


def audited(platform: Any, run: Callable[[], None], **options: Any) -> AuditReport:
    with SyncAudit(platform, detail="full", **options) as audit:
        run()
    return audit.report()


@pytest.mark.parametrize("name", list(CASES))
def test_counts_agree_with_the_profilers(platform, name: str) -> None:
    work, kind, runtime_call = CASES[name]
    x = torch.arange(8.0, device="cuda")

    def run() -> None:
        for _ in range(STEPS):
            with step():
                work(x)

    run()
    nothing = profiled(lambda: None)
    alone = profiled(run)
    report = audited(platform, run, profile=True)
    assert [(site.kind, site.count) for site in report.sites] == [(kind, STEPS)], report.sites
    calls = alone[runtime_call] - nothing[runtime_call]
    assert report.waits == calls, (report.waits, calls)
    # The audit itself makes nobody wait.
    assert report.runtime_events is not None
    assert report.runtime_events.get(runtime_call, 0) - nothing[runtime_call] == calls
    reads = report.operators.get("aten._local_scalar_dense.default", 0)
    assert reads == alone["aten::_local_scalar_dense"]


def test_event_and_unique(platform) -> None:
    """Where one call of ours is several of the runtime's, or of another name."""
    x = torch.arange(8.0, device="cuda")
    event = torch.Event("cuda")

    def synchronize() -> None:
        event.record()
        event.synchronize()

    assert profiled(synchronize)[EVENT] == 1
    assert [site.kind for site in audited(platform, synchronize).sites] == ["event_synchronize"]
    # thrust and cub wait inside unique, as often as they see fit
    assert profiled(lambda: torch.unique(x))[STREAM] >= 1
    (site,) = audited(platform, lambda: torch.unique(x)).sites
    assert (site.kind, site.count) == ("unique", 1)
    # Pageable and non_blocking: the copy itself returns late, and nothing is synchronized.
    host = torch.empty(1 << 24)
    large = torch.ones(1 << 24, device="cuda")
    report = audited(platform, lambda: host.copy_(large, non_blocking=True))
    (site,) = report.sites
    assert site.kind == "d2h_pageable_async"
    assert site.blocked_s > 1e-3  # 64 MiB take longer than that
    assert profiled(lambda: host.copy_(large, non_blocking=True))[STREAM] == 0


@pytest.mark.parametrize("detail", ["counts", "full"])
def test_the_toy_loop(platform, detail: str) -> None:
    toy_loop.Loop("cuda").step(0)
    report = checks.audit_the_loop(platform, "cuda", 50, detail=detail)
    found = {key: n for key, n in checks.found(report).items() if key[1] != "vendor"}
    assert found == toy_loop.expected(device=True, full=detail == "full")
    assert [site.source for site in report.sites if site.kind == "vendor"] == []
    if detail == "full":
        seen = {site.kind for site in report.sites if "sync-debug" in site.seen_by}
        assert {"scalar_read", "truth_value", "cpu", "nonzero", "h2d_pageable"} <= seen


def test_host_bound_and_device_bound_loops(platform) -> None:
    """The same waits: the host is blocked in both, the device idles in one of them."""
    value = torch.ones(1, device="cuda")

    def loop(host_seconds: float) -> AuditReport:
        def run() -> None:
            for _ in range(10):
                with step():
                    torch.cuda._sleep(50_000_000)  # about 28 ms of the device
                    value.item()
                    until = time.perf_counter() + host_seconds
                    while time.perf_counter() < until:
                        pass

        run()
        return audited(platform, run, profile=True)

    device_bound, host_bound = loop(0.0), loop(0.030)
    for report in (device_bound, host_bound):
        assert report.blocked_s > 10 * 0.020
        assert report.idle_s is not None
    assert device_bound.idle_s < 0.02 * device_bound.wall_s  # launching the next step
    assert host_bound.idle_s > 0.3 * host_bound.wall_s
    assert any("need not make this loop faster" in note for note in device_bound.notes)
    assert not any("need not make this loop faster" in note for note in host_bound.notes)


def test_our_own_executor_makes_nobody_wait(platform) -> None:
    with AsyncOutputExecutor(platform) as outputs:
        for shape in ((16,), (64, 1024)):
            image = torch.ones(shape, device="cuda")
            outputs.submit(image).result(60)
            for _ in range(3):  # nobody asks for these at once, so none is copied in submit
                outputs.submit(image)
            outputs.drain(60)

            def run(image: torch.Tensor = image) -> None:
                for _ in range(20):
                    with step():
                        outputs.submit(image + 1)

            report = audited(platform, run)
            outputs.drain(60)
            assert [(site.where, site.kind) for site in report.sites] == []


def test_graph_capture_under_an_audit(platform) -> None:
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with SyncAudit(platform) as audit:
        with torch.cuda.graph(graph):
            y = x * 2
        graph.replay()
    assert y.tolist() == [2.0] * 8
    assert {site.kind for site in audit.report().sites} <= {
        "device_synchronize",
        "allocator_flush",
        "stream_synchronize",
    }  # which torch.cuda.graph itself does before it captures


def test_a_compiled_function(platform) -> None:
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="aot_eager", fullgraph=True)
    x = torch.ones(8, device="cuda")
    compiled(x)

    def run() -> None:
        for _ in range(3):
            with step():
                compiled(x).sum().item()

    report = audited(platform, run)
    assert [(site.kind, site.count) for site in report.sites] == [("scalar_read", 3)]
