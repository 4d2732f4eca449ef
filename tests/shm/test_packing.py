"""Nests come out of the arena as they went in, bit for bit, and a failure leaves nothing behind."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from omni_platforms.shm import Arena, ArenaView, layout
from omni_platforms.shm.layout import INLINE_BYTES, INLINE_SUM_BYTES
from tests.outputs.test_nest import DTYPES, LAYOUTS, make_tensor, nests, same
from tests.shm.conftest import connected

Pair = tuple[Arena, ArenaView]
LARGE = INLINE_BYTES // 4 + 64
"""Elements of a float32 tensor that gets a block."""


def through(pair: Pair, nest: Any) -> Any:
    arena, view = pair
    return view.unpack(arena.pack(nest).data)


def idle(arena: Arena) -> bool:
    """Whether every block is free again, in one piece a segment."""
    stats = arena.stats()
    return (stats.used_bytes, stats.lent, stats.in_flight, stats.retired) == (0, 0, 0, 0) and (
        stats.free_ranges == stats.segments
    )


# Bit for bit ------------------------------------------------------------------


@pytest.mark.parametrize("inline_bytes", [INLINE_BYTES, 0], ids=["inline", "blocks"])
def test_every_nest_round_trips(inline_bytes: int) -> None:
    with connected() as pair, mock.patch.object(layout, "INLINE_BYTES", inline_bytes):

        @settings(max_examples=60, deadline=None)
        @given(nests)
        def round_trip(nest: Any) -> None:
            assert same(through(pair, nest), nest)
            assert idle(pair[0])

        round_trip()


@pytest.mark.parametrize("inline_bytes", [INLINE_BYTES, 0], ids=["inline", "blocks"])
@pytest.mark.parametrize("layout_name", LAYOUTS)
def test_every_dtype_and_layout(pair: Pair, layout_name: str, inline_bytes: int) -> None:
    with mock.patch.object(layout, "INLINE_BYTES", inline_bytes):
        for dtype in DTYPES:
            want = make_tensor(dtype, layout_name, 3)
            got = through(pair, want)
            assert same(got, want), dtype
            assert not got.is_conj()
            assert not got.is_neg()
            assert got.untyped_storage().nbytes() == got.numel() * got.element_size()


def test_dense_tensors_keep_their_order_in_memory(pair: Pair) -> None:
    image = torch.randn(2, 3, 40, 40).to(memory_format=torch.channels_last)
    got = through(
        pair, [image, image.permute(3, 0, 2, 1), image[:, ::2], image.new_empty(0, 3).t()]
    )
    assert got[0].stride() == image.stride()
    assert got[1].stride() == image.permute(3, 0, 2, 1).stride()
    assert got[2].is_contiguous() or got[2].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(got[2], image[:, ::2])
    assert got[3].stride() == image.new_empty(0, 3).t().stride()


@pytest.mark.parametrize("n", [3, 9000])
@pytest.mark.parametrize("dtype", ["f2", "f8", "c16", "?", "u8", "M8[s]", "m8[us]", "S5", "U3"])
def test_arrays_of_every_kind(pair: Pair, dtype: str, n: int) -> None:
    values = np.arange(2 * n).astype(dtype).reshape(2, n)
    for array in (
        values,
        values.T,
        values[:, ::2],
        np.asfortranarray(values),
        values[:0],
        values[1, 1:2].reshape(()),
    ):
        got = through(pair, [array])[0]
        assert type(got) is np.ndarray
        assert got.dtype == array.dtype
        assert np.array_equal(got, array)
        assert got.flags.writeable


def test_arrays_that_are_more_than_their_bytes_travel_as_pickle_does(pair: Pair) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    fields = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    objects = np.array([{"x": 1}, None], dtype=object)
    swapped = np.arange(3, dtype=">i4")
    got = through(pair, (masked, fields, objects, swapped))
    assert got[0].mask.tolist() == [False, True]
    assert got[1]["b"].tolist() == [2.0]
    assert got[2][0] == {"x": 1}
    assert got[3].dtype == swapped.dtype
    assert got[3].tolist() == [0, 1, 2]


def test_tensors_of_other_layouts_travel_with_their_parts_in_blocks(pair: Pair) -> None:
    sparse = torch.eye(5000).to_sparse()
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8)
    a, b = through(pair, (sparse, quantized))
    assert torch.equal(a.to_dense(), torch.eye(5000))
    assert torch.equal(b.dequantize(), torch.ones(3))
    assert pair[0].stats().lent == 2, "indices and values of the sparse tensor are views"


def test_a_parameter_arrives_as_a_plain_tensor(pair: Pair) -> None:
    got = through(pair, torch.nn.Parameter(torch.ones(LARGE)))
    assert type(got) is torch.Tensor
    assert not got.requires_grad


class Holder:
    """No container: an object of the user's with a tensor inside."""

    def __init__(self, image: torch.Tensor) -> None:
        self.image = image


def test_leaves_are_found_inside_objects(pair: Pair) -> None:
    image = torch.randn(LARGE)
    got = through(pair, {"a": Holder(image), "b": image})
    assert torch.equal(got["a"].image, image)
    assert got["a"].image is got["b"]
    assert pair[0].stats().lent == 1


def test_a_nest_that_contains_itself_arrives(pair: Pair) -> None:
    nest: list[Any] = [torch.ones(2)]
    nest.append(nest)
    got = through(pair, nest)
    assert got[1] is got


# Whose bytes are whose --------------------------------------------------------


def test_one_object_twice_is_one_object(pair: Pair) -> None:
    image, array = torch.randn(LARGE), np.ones(5)
    got = through(pair, {"a": image, "b": [image], "c": (array, array)})
    assert got["a"] is got["b"][0]
    assert got["c"][0] is got["c"][1]


def test_views_that_share_a_storage_come_back_apart(pair: Pair) -> None:
    image = torch.zeros(2, LARGE)
    first, second, small, again = through(pair, [image[0], image[0], image[0, :3], image[0, :3]])
    first.fill_(1)
    small.fill_(2)
    assert image.sum() == second.sum() == again.sum() == 0
    assert small.sum() == 6


def test_results_are_writable_and_change_no_later_output(pair: Pair) -> None:
    arena, view = pair
    source = torch.zeros(LARGE)
    first = view.unpack(arena.pack(source))
    first.fill_(7)
    assert source.sum() == 0
    second = view.unpack(arena.pack(source))
    assert second.sum() == 0
    second.fill_(8)
    assert first.eq(7).all()


def test_a_small_view_costs_its_own_bytes(pair: Pair) -> None:
    batch = torch.randn(32, 1000)
    sent = [pair[0].pack(row).data for row in batch]
    assert max(map(len, sent)) < 4000 * 1.1
    for row, data in zip(batch, sent, strict=True):
        assert torch.equal(pair[1].unpack(data), row)


def test_saving_pickling_and_copying_cost_own_bytes(pair: Pair) -> None:
    large = through(pair, {"image": torch.randn(LARGE), "other": torch.randn(50 * LARGE)})["image"]
    for small in (large, *through(pair, [torch.randn(100) for _ in range(9)])):
        own = small.nbytes + 2500
        file = io.BytesIO()
        torch.save(small, file)
        assert len(file.getvalue()) < own
        assert len(pickle.dumps(small)) < own
        assert copy.deepcopy(small).untyped_storage().nbytes() == small.nbytes
        assert len(pickle.dumps(small.numpy())) < own


def test_small_leaves_beyond_what_a_packet_carries_share_one_block(pair: Pair) -> None:
    arena, view = pair
    rows = list(torch.randn(200, 1000))
    packet = arena.pack(rows)
    assert len(packet.data) < INLINE_SUM_BYTES + 200 * 200
    assert arena.stats().lent == 1
    got = view.unpack(packet)
    assert all(map(torch.equal, got, rows))
    assert len(pickle.dumps(got[-1])) < 6000
    last = got[-1]
    del got
    assert arena.stats().lent == 1
    del last
    assert idle(arena)


def test_each_large_leaf_has_a_lease_of_its_own(pair: Pair) -> None:
    arena, view = pair
    got = view.unpack(arena.pack({"video": torch.randn(20 * LARGE), "thumb": torch.randn(LARGE)}))
    thumb = got["thumb"]
    del got
    assert arena.stats().lent == 1
    assert arena.stats().used_bytes < 2 * thumb.nbytes
    assert torch.equal(thumb, thumb.clone())


# The caller's state -----------------------------------------------------------


def test_the_callers_modes_do_not_leak_in(pair: Pair) -> None:
    arena, view = pair
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            source = torch.ones(LARGE, dtype=torch.float32, device="cpu")
            got = view.unpack(arena.pack([source, source[:3], source[:0]]))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    for leaf in got:
        leaf.add_(1)
        assert not leaf.is_inference()
        assert leaf.device.type == "cpu"
        assert leaf.dtype == torch.float32


def test_what_the_caller_does_afterwards_changes_nothing(pair: Pair) -> None:
    arena, view = pair
    live: dict[str, Any] = {"steps": [torch.ones(2)], "meta": {"seed": 1}, "array": np.ones(2)}
    packing = arena.start(live)
    live["steps"].append("late")
    live["meta"]["seed"] = 2
    live["array"][:] = 7
    got = view.unpack(packing.wait())
    assert got["steps"][0].tolist() == got["array"].tolist() == [1.0, 1.0]
    assert got["meta"] == {"seed": 1}
    assert len(got["steps"]) == 1
