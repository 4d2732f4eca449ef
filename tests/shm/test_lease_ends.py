"""Leases that end at bad moments: under an interrupt, and in forked children."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import traceback
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from omni_platforms.errors import ArenaForkedError
from omni_platforms.shm import lease as lease_module
from omni_platforms.shm import reader as reader_module
from tests.shm.test_lease import N, Pair, lent, result


class _Interrupt(weakref.ref[Any]):
    """Calls a C function with this object: the interrupt comes before the next Python line."""

    _as_parameter_ = signal.SIGINT


def test_an_interrupted_return_is_made_up_for(pair: Pair) -> None:
    arena, view = pair
    exporters: list[Any] = []
    lease = reader_module.lease
    with mock.patch.object(
        reader_module, "lease", lambda *a: exporters.append(lease(*a)) or exporters[-1]
    ):
        tensor = result(pair)
    interrupt = _Interrupt(exporters.pop(), ctypes.pythonapi.PyErr_SetInterruptEx)
    unraisable = []

    def note(seen: Any) -> None:
        unraisable.append(seen.exc_type)
        traceback.clear_frames(seen.exc_traceback)  # the interpreter keeps this exception

    with mock.patch("sys.unraisablehook", note):
        del tensor
    assert unraisable == [KeyboardInterrupt]
    assert arena.stats().lent == 1, "the interrupt came too late to mean anything"
    assert view.unpack(arena.pack(1)) == 1
    assert arena.stats().lent == 0
    del interrupt


# Forked children --------------------------------------------------------------


def in_child(run: Callable[[], bool]) -> bool:
    """Fork, run a function there and return whether it was true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if run() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_gives_back_nothing_of_its_parents(pair: Pair) -> None:
    arena, view = pair
    kept = [result(pair)]
    packet = arena.pack(torch.ones(N))

    def child() -> bool:
        kept.clear()
        gc.collect()
        for call in (lambda: arena.pack(1), lambda: view.unpack(packet)):
            try:
                call()
            except ArenaForkedError:
                continue
            return False
        arena.close()
        view.close()
        return True

    assert in_child(child)
    assert lent(arena) == 2
    assert kept[0].sum() == N
    assert view.unpack(packet).sum() == N


def test_without_the_check_a_child_would_free_its_parents_blocks(pair: Pair) -> None:
    kept = [result(pair)]
    parent = os.getpid()
    defaults = lease_module._give_back.__defaults__
    assert defaults is not None
    with mock.patch.object(
        lease_module._give_back, "__defaults__", (lambda: parent, *defaults[1:])
    ):
        assert in_child(lambda: kept.clear() is None)
        assert lent(pair[0]) == 0, "freed while the parent's tensor lives"
    assert kept[0].sum() == N
