"""Mutants of pinned memory, copies and registration: what T3 is for."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.platform.interface import OmniPlatform as P
from omni_platforms.platform.registration import RegisteredHostMemory, as_byte_tensor
from tests.conformance.mutants.mutant import Mutant, Place, Plant, faults, replacing, wrapping

_POOLED = 1 << 20
UNDER_A_COPY = "test_pinned_memory_is_not_reused_under_a_copy"


def _pageable(self: P, shape: Any, dtype: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _bytes_only(original: Any, self: P, shape: Any, dtype: Any) -> torch.Tensor:
    made: torch.Tensor = original(self, shape, torch.float32)
    return made


def _one_buffer(largest: int) -> Plant:
    """Memory of up to `largest` bytes is one and the same for each size."""
    blocks: dict[int, torch.Tensor] = {}

    def pinned(original: Any, self: P, shape: Any, dtype: Any) -> torch.Tensor:
        size = torch.Size(shape).numel() * dtype.itemsize
        if size > largest:
            made: torch.Tensor = original(self, shape, dtype)
            return made
        if size not in blocks:
            blocks[size] = original(self, (size,), torch.uint8)
        return blocks[size].detach().view(dtype).reshape(shape)

    return wrapping("pinned_empty", pinned)


class _CarelessPool:
    """A block is free when the tensor over it dies, with copies still under way."""

    def __init__(self) -> None:
        self._free: dict[int, list[torch.Tensor]] = {}

    def __call__(self, original: Any, owner: P, shape: Any, dtype: Any) -> torch.Tensor:
        size = torch.Size(shape).numel() * dtype.itemsize
        if size != _POOLED:
            made: torch.Tensor = original(owner, shape, dtype)
            return made
        free = self._free.setdefault(size, [])
        block = free.pop() if free else original(owner, (size,), torch.uint8)
        made = block.detach().view(dtype).reshape(shape)
        weakref.finalize(made, free.append, block)
        return made


def _registers_a_copy(original: Any, self: P, buffer: Any) -> Any:
    view = (
        buffer if isinstance(buffer, torch.Tensor) else torch.frombuffer(buffer, dtype=torch.uint8)
    )
    return original(self, view.clone())


def _tensor_is_a_copy(original: Any, self: P, buffer: Any) -> Any:
    made = original(self, buffer)
    copy = self.pinned_empty(tuple(made.tensor.shape), torch.uint8)
    assert copy is not None
    made._tensor = copy.copy_(made.tensor)
    return made


def _late() -> Plant:
    waiting: list[Callable[[], None]] = []

    def register(original: Any, self: P, buffer: Any) -> Any:
        while waiting:
            waiting.pop()()
        made = original(self, buffer)
        once = made._unregister
        made._unregister = lambda: waiting.append(once)
        return made

    return wrapping("register_host_memory", register)


def _never_unregisters(original: Any, self: P, buffer: Any) -> Any:
    made = original(self, buffer)
    made._unregister = lambda: None
    return made


def _unregisters_twice(original: Any, self: P, buffer: Any) -> Any:
    made = original(self, buffer)
    once = made._unregister

    def twice() -> None:
        once()
        once()

    made._unregister = twice
    return made


def _pretends(self: P, buffer: Any) -> Any:
    return RegisteredHostMemory(as_byte_tensor(buffer), lambda: None)


def _raises_what_the_runtime_raises(original: Any, self: P, buffer: Any) -> Any:
    try:
        return original(self, buffer)
    except HostRegistrationError as error:
        raise RuntimeError(str(error)) from None


def _refusal_unregisters(original: Any, self: Any, buffer: Any) -> Any:
    try:
        return original(self, buffer)
    except HostRegistrationError:
        self._runtime.pinned.unregister(buffer.data_ptr())
        raise


def _registers_anything(original: Any, self: P, buffer: Any) -> Any:
    if isinstance(buffer, torch.Tensor) and buffer.device.type == "cpu":
        buffer = buffer.contiguous()
    if isinstance(buffer, bytes):
        buffer = bytearray(buffer)
    return original(self, buffer)


def _closes_once(place: Place) -> Any:
    """`close()` without a memory of what it did."""

    def close(self: RegisteredHostMemory) -> None:
        self._unregister()
        self._tensor = None

    return mock.patch.object(RegisteredHostMemory, "close", close)


@contextlib.contextmanager
def _counts_nothing(place: Place) -> Iterator[None]:
    stats = {key: 0 for key in place.platform.host_memory_stats() or {}}
    with replacing(host_memory_stats=lambda self: stats)(place):
        yield


MUTANTS = [
    Mutant("pinned-type-ignored", "`pinned_empty()` ignores `dtype`",
           "test_pinned_memory_is_pinned_and_as_asked_for",
           wrapping("pinned_empty", _bytes_only)),
    Mutant("pinned-numbers-are-lists", "`pinned_empty(())` has one dimension",
           "test_pinned_memory_is_pinned_and_as_asked_for",
           wrapping("pinned_empty", lambda original, self, shape, dtype:
                    original(self, shape or (1,), dtype))),
    Mutant("pageable-pinned-memory", "`pinned_empty()` returns ordinary memory",
           "test_pinned_memory_is_pinned_and_as_asked_for",
           replacing(pinned_empty=_pageable), "K8"),
    Mutant("no-pin", "the device does not pin what it was asked to pin",
           "test_pinned_memory_is_pinned_and_as_asked_for", faults("no-pin"), "K8"),
    Mutant("pin-raises", "pinning raises RuntimeError",
           "test_pinned_memory_is_pinned_and_as_asked_for", faults("pin-raises"), "K8"),
    Mutant("pin-rounds-up", "pinned memory takes twice what the platform says",
           "test_pinned_allocation_bytes_is_what_is_taken", faults("pin-rounds-up"), "K8"),
    Mutant("pinned-bytes-not-rounded", "`pinned_allocation_bytes(n)` is n",
           "test_pinned_allocation_bytes_is_what_is_taken",
           replacing(pinned_allocation_bytes=lambda self, nbytes: nbytes)),
    Mutant("pinned-bytes-in-kilobytes", "`pinned_allocation_bytes()` counts kilobytes",
           "test_pinned_allocation_bytes_holds_the_allocation",
           wrapping("pinned_allocation_bytes", lambda original, self, nbytes:
                    original(self, nbytes) // 1024)),
    Mutant("pinned-bytes-of-32-bits", "`pinned_allocation_bytes()` ends at 2 GiB",
           "test_pinned_allocation_bytes_holds_the_allocation",
           wrapping("pinned_allocation_bytes", lambda original, self, nbytes:
                    min(original(self, nbytes), 2**31 - 1))),
    Mutant("one-pinned-buffer", "`pinned_empty()` hands out one buffer again and again",
           "test_pinned_memory_belongs_to_one_owner", _one_buffer(largest=1 << 40)),
    Mutant("one-small-pinned-buffer", "`pinned_empty()` of a page or less is one buffer",
           "test_pinned_memory_belongs_to_one_owner", _one_buffer(largest=4096)),
    Mutant("careless-pinned-pool", "pinned memory serves again while a copy uses it",
           UNDER_A_COPY, lambda place: wrapping("pinned_empty", _CarelessPool())(place)),
    Mutant("stats-that-stand-still", "`host_memory_stats()` is zero throughout",
           "test_host_memory_stats_count_an_allocation", _counts_nothing),
    Mutant("host-memory-kept", "`release_host_memory()` says True and does nothing",
           "test_release_host_memory_gives_the_cache_back",
           replacing(release_host_memory=lambda self: True)),
    Mutant("dma-outside-event", "a copy runs on an engine that no event covers",
           "test_an_event_covers_the_copy_before_it", faults("dma-outside-event"), "K2"),
    Mutant("pageable-copy-async", "copies from ordinary memory return before they have read it",
           "test_ordinary_memory_may_be_dropped_after_a_copy_from_it",
           faults("pageable-copy-async"), "K7"),
    Mutant("registers-a-copy", "`register_host_memory()` registers a copy of the memory",
           "test_the_device_writes_into_the_very_memory",
           wrapping("register_host_memory", _registers_a_copy)),
    Mutant("tensor-is-a-copy", "`.tensor` is pinned memory beside the memory that was registered",
           "test_the_device_writes_into_the_very_memory",
           wrapping("register_host_memory", _tensor_is_a_copy)),
    Mutant("unregistered-late", "`close()` leaves the memory registered until the next one is",
           "test_registered_memory_is_pinned_until_closed", _late()),
    Mutant("registration-pretended", "`register_host_memory()` registers nothing",
           "test_registered_memory_is_pinned_until_closed",
           replacing(register_host_memory=_pretends)),
    Mutant("never-unregistered", "`close()` leaves the memory registered",
           "test_registered_memory_is_pinned_until_closed",
           wrapping("register_host_memory", _never_unregisters)),
    Mutant("unregistered-twice", "`close()` calls the runtime twice",
           "test_memory_is_unregistered_once",
           wrapping("register_host_memory", _unregisters_twice)),
    Mutant("close-forgets", "a second `close()` unregisters again",
           "test_memory_is_unregistered_once", _closes_once),
    Mutant("runtime-error-let-through", "a refused registration raises the runtime's own error",
           "test_a_refusal_is_an_error_of_its_own_and_of_no_later_call",
           wrapping("register_host_memory", _raises_what_the_runtime_raises)),
    Mutant("refusal-unregisters", "a refused registration undoes the one that is there",
           "test_a_refusal_is_an_error_of_its_own_and_of_no_later_call",
           wrapping("register_host_memory", _refusal_unregisters)),
    Mutant("registers-anything", "read-only and scattered memory is copied, then registered",
           "test_what_cannot_be_registered_is_refused",
           wrapping("register_host_memory", _registers_anything)),
]  # fmt: skip
