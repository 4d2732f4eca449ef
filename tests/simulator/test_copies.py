"""Copies: every type and layout, both ways, and who waits for what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from omni_platforms.simulator import Simulation

D = "sim"
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x,
    "scalar": lambda x: x[0, 0, 0, 0],
    "empty": lambda x: x[:0],
    "expanded": lambda x: x[:1].expand(4, 3, 4, 5),
    "strided": lambda x: x[::2, :, 1::2],
    "transposed": lambda x: x.transpose(1, 3),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def make(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(120).reshape(2, 3, 4, 5)
    if dtype.is_complex:
        return torch.complex(values.float(), -values.float()).to(dtype)
    return (values % (2 if dtype is torch.bool else 7)).to(dtype)


def bits(tensor: torch.Tensor) -> list[int]:
    """The tensor's elements as bytes, for types that torch cannot compare."""
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).tolist() if flat.numel() else []


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@every_dtype
@every_layout
def test_every_type_and_layout_comes_back(
    sim: Simulation, dtype: torch.dtype, layout: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    want = layout(make(dtype))

    def scenario() -> None:
        there = layout(make(dtype).to(D))
        assert (there.shape, there.stride()) == (want.shape, want.stride())
        pinned = torch.empty(there.shape, dtype=dtype, pin_memory=True)
        pinned.copy_(there, non_blocking=True)
        torch.accelerator.synchronize()
        again = want.contiguous().pin_memory().to(D, non_blocking=True)
        for got in (
            there.cpu(),
            pinned,
            there.clone().cpu(),
            there.contiguous().cpu(),
            again.cpu(),
        ):
            assert got.dtype == dtype
            assert got.shape == want.shape
            assert bits(got) == bits(want)

    found = sim.explore(scenario)
    assert found.ok, str(found)


def test_the_layout_of_a_copy_is_kept(sim: Simulation) -> None:
    source = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    there = source.to(D)
    assert there.is_contiguous(memory_format=torch.channels_last)
    assert there.to("cpu", non_blocking=True).stride() == source.stride()


COMPLEX = torch.randn(3, 4, dtype=torch.complex64)
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conj": lambda x: x.conj(),
    "conj of a slice": lambda x: x[1:, ::2].conj(),
    "adjoint": lambda x: x.mH,
    "neg": lambda x: x.conj().imag,
    "neg view": lambda x: torch._neg_view(x.real),
    "conj and neg": lambda x: torch._neg_view(x.conj()),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_conj_and_neg_views(sim: Simulation, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    want = view(COMPLEX).resolve_conj().resolve_neg()

    def scenario() -> None:
        there = view(COMPLEX.to(D))
        late = there.to("cpu", non_blocking=True)
        pinned = torch.empty(want.shape, dtype=want.dtype, pin_memory=True)
        pinned.copy_(there, non_blocking=True)
        torch.accelerator.synchronize()
        assert not late.is_conj()
        for got in (
            late,
            pinned,
            there.cpu(),
            there.resolve_conj().resolve_neg().cpu(),
            there.clone().cpu(),
            there.contiguous().cpu(),
            (there + 0).cpu(),
            view(COMPLEX).to(D).cpu(),
        ):
            assert torch.equal(got, want)

    found = sim.explore(scenario)
    assert found.ok, str(found)


def test_writing_through_conj_views(sim: Simulation) -> None:
    ours, there = COMPLEX.clone(), COMPLEX.to(D)
    for tensor in (ours, there):
        tensor.conj().add_(1j)
        tensor.conj()[0].copy_(tensor[1])
    assert torch.equal(there.cpu(), ours)


def test_the_target_of_a_pending_copy_is_undefined(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.full((4,), 3.0).pin_memory()
    target.copy_(torch.full((4,), 3.0, device=D), non_blocking=True)
    assert target.isnan().all()
    torch.accelerator.synchronize()
    assert target.tolist() == [3.0] * 4


def test_pinned_memory_is_read_late_and_other_memory_at_the_call(sim: Simulation) -> None:
    sim.reset("lazy")
    pinned, plain = torch.ones(4).pin_memory(), torch.ones(4)
    late, early = pinned.to(D, non_blocking=True), plain.to(D, non_blocking=True)
    pinned.fill_(5)
    plain.fill_(5)
    assert sim.host_waits == 0
    assert early.cpu().tolist() == [1.0] * 4
    assert late.cpu().tolist() == [5.0] * 4


PINNED_WAITS: dict[str, tuple[Callable[[], torch.Tensor], int]] = {
    "pinned": (lambda: torch.empty(4, 6, pin_memory=True), 0),
    "pinned of another type": (lambda: torch.empty(4, 6, dtype=torch.float64, pin_memory=True), 0),
    "a row of pinned": (lambda: torch.empty(2, 4, 6, pin_memory=True)[1], 0),
    "pinned with gaps": (lambda: torch.empty(4, 12, pin_memory=True)[:, ::2], 1),
    "pinned in another order": (lambda: torch.empty(6, 4, pin_memory=True).t(), 1),
    "pageable": (lambda: torch.empty(4, 6), 1),
}


@pytest.mark.parametrize(("make", "waits"), PINNED_WAITS.values(), ids=PINNED_WAITS)
def test_which_copies_to_the_host_wait(
    sim: Simulation, make: Callable[[], torch.Tensor], waits: int
) -> None:
    sim.reset("lazy")
    source, target = torch.ones(4, 6, device=D), make()
    target.copy_(source, non_blocking=True)
    assert sim.host_waits == waits
    torch.accelerator.synchronize()
    assert target.tolist() == [[1.0] * 6] * 4


def test_blocking_copies_wait(sim: Simulation) -> None:
    sim.reset("lazy")
    there = torch.ones(4).pin_memory().to(D)
    assert sim.host_waits == 1
    assert there.cpu().tolist() == [1.0] * 4
    assert sim.host_waits == 2


def test_inference_mode_does_not_reach_the_tasks(sim: Simulation) -> None:
    def scenario() -> None:
        with torch.inference_mode():
            inside = (torch.ones(4, device=D) * 2).to("cpu", non_blocking=True)
        outside = torch.ones(4, device=D)
        with torch.inference_mode(), torch.autocast("cpu"):
            result = outside + 1
            torch.accelerator.synchronize()
        assert inside.tolist() == [2.0] * 4
        assert result.cpu().tolist() == [2.0] * 4

    found = sim.explore(scenario)
    assert found.ok, str(found)


def test_a_data_loader_pins(sim: Simulation) -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, pin_memory=True)
    for step, (batch,) in enumerate(loader):
        assert batch.is_pinned()
        assert batch.to(D, non_blocking=True).cpu().tolist() == [2.0 * step, 2.0 * step + 1]
