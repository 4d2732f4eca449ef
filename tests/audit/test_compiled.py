"""Compiled functions under an audit, on a simulated device: still compiled, and reads are seen."""

from __future__ import annotations

import torch
from torch._dynamo.utils import counters

from omni_platforms.audit import SyncAudit
from tests.simulated import NAME


def computed(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).to(torch.float32).relu() + torch.full((4,), 1.0, device=x.device)


def copied(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).cpu() + 1


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def test_a_compiled_function_is_not_broken_up_and_its_result_is_read_at_its_line(sim) -> None:
    torch._dynamo.reset()
    counters.clear()
    x = torch.ones(4, device=NAME)
    compiled = torch.compile(computed, backend="aot_eager", fullgraph=True)
    compiled(x)
    assert graphs() == 1
    with SyncAudit(sim.platform, detail="full") as audit:
        for _ in range(3):
            assert compiled(x).sum().item() == 12.0
    assert [(site.kind, site.count) for site in audit.report().sites] == [("scalar_read", 3)]
    compiled(x)
    assert graphs() == 1  # nothing was compiled again, neither under the audit nor after it


def test_a_function_compiled_under_an_audit_is_compiled_as_always(sim) -> None:
    torch._dynamo.reset()
    counters.clear()
    x = torch.ones(4, device=NAME)
    compiled = torch.compile(copied, backend="aot_eager", fullgraph=True)
    with SyncAudit(sim.platform, detail="full") as audit:
        for _ in range(3):
            assert compiled(x).tolist() == [3.0] * 4
    assert graphs() == 1
    (site,) = audit.report().sites
    assert (site.kind, site.count) == ("operator_copy", 3)  # inside the graph
    assert site.file.endswith("test_compiled.py")
