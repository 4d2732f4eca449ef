"""A block is the consumer's until the last view of it is gone, and not a moment longer."""

from __future__ import annotations

import _thread
import ctypes
import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from omni_platforms.shm import Arena, ArenaView, returns
from omni_platforms.shm import lease as lease_module
from omni_platforms.shm import view as view_module
from tests.shm.conftest import connected

Pair = tuple[Arena, ArenaView]
N = 9000


def lent(arena: Arena) -> int:
    gc.collect()
    return arena.stats().lent


def result(pair: Pair, value: float = 1.0) -> torch.Tensor:
    arena, view = pair
    tensor = view.unpack(arena.pack(torch.full((N,), value)))
    assert isinstance(tensor, torch.Tensor)
    return tensor


class Cycle:
    """Something that only the garbage collector frees."""

    def __init__(self, held: Any) -> None:
        self.me, self.held = self, held


def _graph(tensor: torch.Tensor) -> Any:
    weight = torch.ones(N, requires_grad=True)
    return (weight * tensor).sum()  # keeps the tensor for its backward


def _module(tensor: torch.Tensor) -> Any:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(tensor)
    return module


DERIVATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "slice": lambda t: t[5:6],
    "reshape": lambda t: t.reshape(90, 100).t(),
    "as_strided": lambda t: t.as_strided((3, 3), (1, 1)),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "other dtype": lambda t: t.view(torch.uint8)[7:],
    "complex": lambda t: torch.view_as_complex(t.view(-1, 2)).conj(),
    "parameter": torch.nn.Parameter,
    "module": _module,
    "storage": lambda t: t.untyped_storage(),
    "typed storage": lambda t: torch.storage.TypedStorage(
        wrap_storage=t.untyped_storage(), dtype=t.dtype, _internal=True
    ),
    "set_": lambda t: torch.empty(0).set_(t.untyped_storage(), 4, (3,), (1,)),
    "graph": _graph,
    "chunks": lambda t: t.chunk(3)[1],
    "unbind": lambda t: t[:3].unbind()[2],
    "array": lambda t: t.numpy(),
    "array slice": lambda t: t.numpy()[3:][::2],
    "array view": lambda t: t.numpy().view("u1").reshape(-1, 4),
    "array and back": lambda t: torch.from_numpy(t.numpy())[1:],
    "asarray": np.asarray,
    "frombuffer": lambda t: np.frombuffer(t.numpy(), "u1")[1:],
    "base": lambda t: t.numpy()[1:].base,
    "memoryview": lambda t: memoryview(t.numpy()),
    "memoryview slice": lambda t: memoryview(t.numpy())[2:].cast("B")[1:],
    "memoryview object": lambda t: memoryview(t.numpy()).obj,
    "ctypes": lambda t: (ctypes.c_float * 3).from_buffer(t.numpy(), 8),
    "dlpack": lambda t: torch.from_dlpack(t)[1:],
    "dlpack capsule": lambda t: t.__dlpack__(),
    "array from dlpack": np.from_dlpack,
    "iterator": lambda t: iter(t[:3]),
    "closure": lambda t: lambda: t,
    "bound method": lambda t: t.sum,
    "cycle": Cycle,
    "exception": lambda t: _raised_with(t),
}


def _raised_with(tensor: torch.Tensor) -> BaseException:
    try:
        raise ValueError("a traceback keeps the frame, and so the tensor")
    except ValueError as error:
        return error


@pytest.mark.parametrize("name", DERIVATIONS)
def test_whatever_is_derived_keeps_the_block(pair: Pair, name: str) -> None:
    arena = pair[0]
    derived = DERIVATIONS[name](result(pair))
    assert lent(arena) == 1
    other = [result(pair, 5.0) for _ in range(3)]  # would write over a block that was free
    if not callable(derived) and hasattr(derived, "numpy") and derived.dtype == torch.float32:
        assert 5.0 not in derived.detach().numpy()
    del other
    assert lent(arena) == 1
    del derived
    assert lent(arena) == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_views_may_die_in_any_order(pair: Pair, order: tuple[int, ...]) -> None:
    tensor = result(pair)
    array = tensor.numpy()
    views: list[Any] = [tensor, tensor[1:], array, memoryview(array)[1:]]
    del tensor, array
    for at, which in enumerate(order):
        assert lent(pair[0]) == 1, f"freed after {at} of 4"
        views[which] = None
    assert lent(pair[0]) == 0


def test_arrays_lease_as_tensors_do(pair: Pair) -> None:
    arena, view = pair
    derivations: list[Callable[[Any], Any]] = [
        lambda a: a[3:], lambda a: a.base, lambda a: memoryview(a)[1:], lambda a: a.view("u1"),
        torch.from_numpy, lambda a: np.frombuffer(a.base, "u1"), lambda a: a.T.reshape(-1)[2:],
    ]  # fmt: skip
    for derive in derivations:
        array = view.unpack(arena.pack(np.ones(N)))
        derived = derive(array)
        del array
        assert lent(arena) == 1
        del derived
        assert lent(arena) == 0


def test_copies_keep_nothing(pair: Pair) -> None:
    tensor = result(pair)
    kept = [tensor.clone(), tensor + 1, tensor.numpy().copy(), bytes(tensor.numpy()), tensor.sum()]
    del tensor
    assert lent(pair[0]) == 0
    assert kept[0].sum() == N


def test_a_tensor_that_moves_to_other_shared_memory_gives_its_block_back(pair: Pair) -> None:
    tensor = result(pair)
    tensor.share_memory_()
    assert lent(pair[0]) == 0
    assert tensor.sum() == N


def test_the_object_alone_is_not_what_is_leased(pair: Pair) -> None:
    """The planted bug: a lease that ends with the tensor object, not with its memory."""

    def of_the_object(leaf: Any, contents: Any, leases: Any) -> Any:
        made = _value(leaf, contents, leases)
        exporter = weakref.getweakrefs(leases[leaf.block])[0]
        weakref.finalize(made, lease_module._give_back, exporter)
        return made

    _value = view_module._value
    with mock.patch.object(view_module, "_value", of_the_object):
        array = result(pair).numpy()
        tail = result(pair)[1:]
    assert lent(pair[0]) == 0, "the block went back while an array and a slice view it"
    result(pair, 5.0)
    assert 5.0 in (array[0], tail[0])


def test_the_collector_gives_back_blocks_of_cycles(pair: Pair) -> None:
    gc.disable()
    try:
        Cycle([result(pair), result(pair).numpy()])
        assert pair[0].stats().lent == 2
        gc.collect()
        assert pair[0].stats().lent == 0
    finally:
        gc.enable()


def test_a_result_that_comes_back_to_life_keeps_its_block(pair: Pair) -> None:
    saved = []

    class Phoenix(Cycle):
        def __del__(self) -> None:
            saved.append(self.held)

    Phoenix(result(pair))
    assert lent(pair[0]) == 1
    assert saved[0].sum() == N
    saved.clear()
    assert lent(pair[0]) == 0


def test_blocks_go_back_on_any_thread(pair: Pair) -> None:
    results = [result(pair) for _ in range(40)]

    def let_go() -> None:
        while results:
            try:
                results.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lent(pair[0]) == 0


def test_giving_back_needs_no_lock_that_anybody_holds(pair: Pair) -> None:
    """The collector runs while this thread holds every lock there is."""
    arena = pair[0]
    kept = Cycle(result(pair))
    locks = [
        value
        for value in vars(arena._blocks).values()
        if isinstance(value, type(_thread.allocate_lock()))
    ]
    assert locks
    for lock in locks:
        lock.acquire()
    try:
        del kept
        gc.collect()
        assert lease_module.open_leases() == 0
    finally:
        for lock in locks:
            lock.release()
    assert lent(arena) == 0


def test_a_block_is_usable_at_once(pair: Pair) -> None:
    first = result(pair)
    address = first.data_ptr()
    del first
    assert result(pair).data_ptr() == address


def test_a_full_pipe_cannot_happen(pair: Pair) -> None:
    """As many leases as there may be, all given back before the worker looks once."""
    with (
        mock.patch.object(returns, "_WANTED_BYTES", 4096),
        connected(segment_bytes=8 << 20) as (arena, view),
    ):
        limit = arena._blocks.returns.capacity
        kept = []
        with mock.patch("omni_platforms.shm.layout.INLINE_BYTES", 0):
            tiny = torch.ones(1)
            data = [arena.pack([tiny[:] for _ in range(100)]).data for _ in range(limit // 100)]
            data.append(arena.pack([tiny[:] for _ in range(limit % 100)]).data)
            with pytest.raises(MemoryError, match="limit of open leases"):
                arena.pack(tiny)
        for packet in data:
            kept.append(view.unpack(packet))
        assert lease_module.open_leases() == limit
        kept.clear()
        assert lent(arena) == 0
