"""Nests come back with the same shape, and leaves bit for bit, whatever they hold."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.errors import UnsupportedOutputError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.outputs.nest import flatten
from omni_platforms.platform.cpu import CpuPlatform

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
LAYOUTS = [
    "plain",
    "scalar",
    "empty",
    "step",
    "transposed",
    "expanded",
    "conj",
    "neg",
    "grad",
    "view",
]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any
    extra: Any = None


@dataclasses.dataclass
class WithSlots:
    __slots__ = ("a", "b")
    a: Any
    b: Any


class ModelOutput(collections.OrderedDict):
    """A dict subclass with attributes, as libraries have them."""


def make_tensor(dtype: torch.dtype, layout: str, seed: int, device: str = "cpu") -> torch.Tensor:
    """Return a tensor with random bytes in one of the layouts that outputs come in."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (4 * 6 * size,), generator=generator)
    base = raw.to(torch.uint8).view(dtype).reshape(4, 6)
    if device != "cpu":
        base = base.to(device)
    if layout == "scalar":
        return base[1, 2]
    if layout == "empty":
        return base[:0]
    if layout == "step":
        return base[::2, ::3]
    if layout == "transposed":
        return base.t()
    if layout == "expanded":
        return base[:, :1].expand(4, 5)
    if layout == "view":
        return base[1:3]
    if layout == "conj" and dtype.is_complex:
        return base.conj()
    if layout == "neg" and dtype.is_complex:
        return base.conj().imag
    if layout == "grad" and dtype in (torch.float32, torch.float64):
        return base.clone().requires_grad_()
    return base


def bits(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's values in logical order, after lazy operations."""
    host = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy().tobytes() if host.numel() else b""


def same(got: Any, want: Any) -> bool:
    """Whether two nests have the same structure, types and bits."""
    if isinstance(want, torch.Tensor):
        return (
            type(got) is torch.Tensor and got.device.type == "cpu" and got.dtype == want.dtype
            and got.shape == want.shape and not got.requires_grad and bits(got) == bits(want)
        )  # fmt: skip
    if type(got) is not type(want):
        return False
    if isinstance(want, np.ndarray):
        return got.dtype == want.dtype and got.tobytes() == want.tobytes()
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[k], want[k]) for k in want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    if dataclasses.is_dataclass(want):
        names = [field.name for field in dataclasses.fields(want)]
        return all(same(getattr(got, name), getattr(want, name)) for name in names)
    return got is want or got == want


leaves = st.builds(
    make_tensor, st.sampled_from(DTYPES), st.sampled_from(LAYOUTS), st.integers(0, 99)
)
arrays = st.builds(
    lambda dtype, n: np.arange(n).astype(dtype),
    st.sampled_from(["f4", "i8", "c16", "?"]),
    st.integers(0, 5),
)
plain = st.one_of(st.none(), st.text(max_size=3), st.integers(), st.just(b"x"))


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return every kind of container around `children`."""
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), children, max_size=3),
        st.dictionaries(st.text(max_size=2), children, max_size=3).map(ModelOutput),
        st.builds(Pair, children, children),
        st.builds(Frozen, children, children),
        st.builds(WithSlots, children, children),
    )


nests = st.recursive(st.one_of(leaves, arrays, plain), containers, max_leaves=8)


@given(nests)
def test_a_nest_round_trips_bit_for_bit(nest: Any) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        assert same(outputs.submit(nest).result(10), nest)


def test_the_comparison_sees_one_wrong_bit() -> None:
    want = make_tensor(torch.bfloat16, "plain", 1)
    got = want.clone()
    got.view(torch.uint8)[3, 5] ^= 1
    assert same(want.clone(), want)
    assert not same(got, want)


def test_leaves_own_exactly_their_bytes(cpu_outputs: AsyncOutputExecutor) -> None:
    batch = torch.arange(32 * 100.0).reshape(32, 100)
    for row in cpu_outputs.submit(list(batch)).result():
        assert row.untyped_storage().nbytes() == 400


def test_writing_a_result_changes_nothing_else(cpu_outputs: AsyncOutputExecutor) -> None:
    source = torch.zeros(4)
    first, second = cpu_outputs.submit([source, source[:]]).result()
    first.fill_(1)
    assert source.tolist() == second.tolist() == [0.0] * 4


def test_one_object_twice_is_copied_once(cpu_outputs: AsyncOutputExecutor) -> None:
    image = torch.ones(3)
    result = cpu_outputs.submit({"a": image, "b": [image]}).result()
    assert result["a"] is result["b"][0]
    assert result["a"] is not image


def test_structure_is_a_snapshot_of_the_moment_of_submit() -> None:
    live: dict[str, Any] = {"steps": [torch.ones(2)], "meta": {"seed": 1}, "array": np.ones(2)}
    values, rebuild = flatten(live)
    taken = [value.clone() if isinstance(value, torch.Tensor) else value.copy() for value in values]
    live["steps"].append("late")
    live["meta"]["seed"] = 2
    live["array"][:] = 7
    result = rebuild(taken)
    assert len(result["steps"]) == 1
    assert result["meta"] == {"seed": 1}
    assert result["array"].tolist() == [1.0, 1.0]


def test_a_nest_that_contains_itself_is_refused(cpu_outputs: AsyncOutputExecutor) -> None:
    nest: list[Any] = [torch.ones(1)]
    nest.append(nest)
    with pytest.raises(UnsupportedOutputError, match="contains itself"):
        cpu_outputs.submit(nest)
    assert cpu_outputs.submit(1).result() == 1


def test_a_meta_tensor_fails_its_own_output_only(cpu_outputs: AsyncOutputExecutor) -> None:
    bad = cpu_outputs.submit(torch.empty(2, device="meta"))
    with pytest.raises(UnsupportedOutputError, match="no data"):
        bad.result()
    assert cpu_outputs.submit(torch.ones(1)).result().tolist() == [1.0]


def test_sparse_and_quantized_tensors_arrive(cpu_outputs: AsyncOutputExecutor) -> None:
    sparse = torch.eye(3).to_sparse()
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8)
    a, b = cpu_outputs.submit((sparse, quantized)).result()
    assert torch.equal(a.to_dense(), torch.eye(3))
    assert torch.equal(b.dequantize(), torch.ones(3))


def test_results_made_in_inference_mode_can_be_written(cpu_outputs: AsyncOutputExecutor) -> None:
    with torch.inference_mode():
        future = cpu_outputs.submit(torch.ones(2) * 3)
    result = future.result()
    result.add_(1)
    assert not result.is_inference()
    assert result.tolist() == [4.0, 4.0]
