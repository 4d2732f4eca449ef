"""Which tensors are the host's where the CPU is taken as a device."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.audit import SyncAudit
from omni_platforms.audit.worlds import says_cpu
from omni_platforms.platform.cpu import CpuPlatform
from tests.simulated import NAME


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('x.to("cpu")', True),
        ("x.to('cpu', torch.float16)", True),
        ('x.to(torch.device("cpu"))', True),
        ('x.to(device="cpu")', True),
        ('torch.zeros(3, device="cpu")', True),
        ("torch.zeros(3, device=device)", False),
        ('torch.zeros(3, device="cpu").to(device)', False),
        ('f(x.to("cpu"))', False),
        ('x.to(names["cpu"])', False),
        ('host = torch.zeros(3, device="cpu")\n', True),  # a line, where no more is known
        ("host = torch.zeros(3, device=device)\n", False),
    ],
)
def test_the_cpu_must_be_the_calls_own_device(source: str, says: bool) -> None:
    assert says_cpu(source) == says


def reads(make) -> int:
    """Return how often reading what `make` returns would wait."""
    with SyncAudit(CpuPlatform()) as running:
        tensor = make()
        before = running.report().count
        tensor.sum().item()
        return running.report().count - before


def test_what_is_made_of_host_tensors_alone_is_the_hosts() -> None:
    device = "cpu"
    assert reads(lambda: torch.ones(3)) == 1
    assert reads(lambda: torch.ones(3, device=device)) == 1
    assert reads(lambda: torch.ones(3).cpu() * 2) == 0
    assert reads(lambda: torch.ones(3).cpu() + torch.ones(3)) == 1
    assert reads(lambda: torch.ones(3).cpu().to(device)) == 1
    assert reads(lambda: torch.tensor([1.0])[0:1].clone()) == 0
    assert reads(lambda: torch.tensor([1.0], device=device)) == 1
    assert reads(lambda: torch.ones(3, device="cpu").add_(1)) == 0
    assert reads(lambda: torch.as_tensor([1.0]).to(torch.float64)) == 0
    assert reads(lambda: torch.as_tensor(torch.tensor([1.0]), device=device)) == 1


def test_a_copy_to_the_host_is_other_memory() -> None:
    with SyncAudit(CpuPlatform()):
        tensor = torch.zeros(2)
        host = tensor.cpu()
        tensor += 1
    assert host.tolist() == [0.0, 0.0]


def test_memory_that_is_used_again_is_not_taken_for_the_hosts() -> None:
    with SyncAudit(CpuPlatform()) as running:
        for _ in range(200):
            torch.ones(64).cpu()
            device = torch.ones(64)
            device.sum().item()
    counts = {site.kind: site.count for site in running.report().sites}
    assert counts == {"cpu": 200, "scalar_read": 200}


def unusual(device: str) -> None:
    """Tensors without plain bytes; each must behave as without an audit."""
    x = torch.arange(3.0, device=device)
    assert torch.vmap(lambda row: row.cpu() * 2)(x).tolist() == [0.0, 2.0, 4.0]
    # Not a backward pass: the first one of a process settles which devices autograd knows.
    _, tangent = torch.func.jvp(lambda t: t.cpu() * 2, (x,), (torch.ones_like(x),))
    assert tangent.tolist() == [2.0] * 3
    assert torch.nn.Parameter(x.clone()).cpu().tolist() == [0.0, 1.0, 2.0]
    assert torch.empty(0, device=device).tolist() == []
    assert torch.tensor(3.0, device=device).to("cpu", torch.int32).item() == 3
    value = torch.ones(2, dtype=torch.complex64, device=device).conj()
    assert value.to("cpu").tolist() == [1 + 0j] * 2


def test_unusual_tensors_behave_as_without_an_audit() -> None:
    with SyncAudit(CpuPlatform(), detail="full"):
        unusual("cpu")
        sparse = torch.eye(2).to_sparse()
        assert sparse.cpu().to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_unusual_tensors_of_a_device_behave_as_without_an_audit(sim) -> None:
    unusual(NAME)
    with SyncAudit(sim.platform, detail="full") as running:
        unusual(NAME)
    assert running.report().count > 0
