"""The faults that a simulated device can have: each one seen on a real vendor's stack.

`simulate(faults=...)`, `Simulation.reset(faults=...)` and `Simulation.faulty(...)`
take them by name::

    with simulation.faulty("dma-outside-event", "hidden-host-sync:record-event"):
        run_my_tests()

A test suite for accelerators that stays green with a fault switched on does not
test what the fault breaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from omni_platforms.errors import SimulatorStateError

HOST_SYNC_PRIMITIVES = {
    "record-event": "event_record",
    "wait-event": "event_block",
    "query-event": "event_query",
    "new-stream": "new_stream",
    "set-stream": "exchange_stream",
    "set-device": "set_device",
    "allocate": "malloc",
    "pin": "host_malloc",
    "copy-to-host": "",  # an operator; `copies.py` asks for it
}
"""What `hidden-host-sync` can be put into, and the driver's method for it."""

GENERIC_METHODS = {
    **{name: method for name, method in HOST_SYNC_PRIMITIVES.items() if method},
    "synchronize-event": "event_synchronize",
    "synchronize-stream": "stream_synchronize",
    "synchronize-device": "device_synchronize",
    "empty-cache": "empty_cache",
    "empty-host-cache": "host_empty_cache",
    "memory-info": "memory_free",
    "memory-stats": "device_stats",
}
"""What `missing-method` can take from torch's generic interface, and the driver's method."""

MODULE_PREFIX = "module."

ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (RuntimeError, AttributeError, AssertionError, NotImplementedError)
}


def _fault(what: str) -> bool:
    flag: bool = field(default=False, metadata={"what": what})
    return flag


@dataclass(frozen=True)
class Faults:
    """A set of faults; without arguments, none. The option's name has hyphens: `no-pin`."""

    native_event_ignored: bool = _fault(
        "a generic stream drops a wait for an event of the vendor's own class, without a word"
    )
    dma_outside_event: bool = _fault(
        "an asynchronous copy to the host runs on a copy engine that no event covers; waiting "
        "for its stream or the device does"
    )
    missed_wakeup: bool = _fault(
        "`event.synchronize()` never returns, though the work is done; queries and waits for "
        "the stream work"
    )
    wait_before_record_hangs: bool = _fault(
        "a wait for a native event that was never recorded stops its stream for ever"
    )
    same_stream_wait_raises: bool = _fault(
        "a stream refuses to wait for an event that was recorded on itself"
    )
    invisible_comm_stream: bool = _fault(
        "waiting for a collective does not order it before the current stream: it writes from a "
        "stream that no event covers"
    )
    pageable_copy_async: bool = _fault(
        "non-blocking copies from and to ordinary host memory return before they are done"
    )
    no_pin: bool = _fault("memory that was asked for as pinned is ordinary memory")
    pin_raises: bool = _fault("pinning raises `RuntimeError`")
    pin_rounds_up: bool = _fault(
        "pinned memory takes twice what torch's pinned allocator takes, and nothing says so"
    )
    set_device_noop: bool = _fault("setting the current device does nothing")
    stream_ignores_index: bool = _fault(
        "a new stream is on the current device, whatever index was asked for"
    )
    stream_context_on_object: bool = _fault(
        "the module's `stream(...)` keeps the previous stream on the stream object, so that two "
        "threads in one stream restore each other's"
    )
    missing_methods: tuple[str, ...] = ()
    """Each `<method>` or `<method>=<error>`: a name of `GENERIC_METHODS` whose generic call
    raises (`RuntimeError` unless it says another of `ERRORS`), or `module.<name>`, an attribute
    that the module `torch.<device>` lacks."""
    hidden_host_syncs: tuple[str, ...] = ()
    """The names of `HOST_SYNC_PRIMITIVES` that make the host wait for the device first; such
    waits are counted in `host_waits`."""
    hang_seconds: float = 2.0
    """How long a wait that would never return really blocks, in seconds, before it raises
    `SimulatedHangError`."""

    def __post_init__(self) -> None:
        for name in self.hidden_host_syncs:
            _check_name(name, HOST_SYNC_PRIMITIVES, "hidden-host-sync")
        for item in self.missing_methods:
            name, error = split_missing(item)
            if not name.startswith(MODULE_PREFIX):
                _check_name(name, GENERIC_METHODS, "missing-method")
            _check_name(error, ERRORS, f"missing-method:{name}")

    def names(self) -> list[str]:
        """Return the faults that are on, as `of` takes them."""
        flags = [_option(entry.name) for entry in _flags() if getattr(self, entry.name)]
        missing = [f"missing-method:{item}" for item in self.missing_methods]
        return [*flags, *missing, *(f"hidden-host-sync:{name}" for name in self.hidden_host_syncs)]

    @staticmethod
    def of(names: Faults | Iterable[str]) -> Faults:
        """Return the faults with these names; `Faults` stay as they are.

        Raises `SimulatorStateError` for a name that is none.
        """
        if isinstance(names, Faults):
            return names
        if isinstance(names, str):
            names = [names]
        flags: dict[str, bool] = {}
        lists: dict[str, list[str]] = {"missing-method": [], "hidden-host-sync": []}
        for name in names:
            kind, _, detail = name.partition(":")
            if kind in lists and detail:
                lists[kind].append(detail)
            else:
                _check_name(name, known_faults(), "a simulated device")
                flags[name.replace("-", "_")] = True
        return Faults(
            missing_methods=tuple(lists["missing-method"]),
            hidden_host_syncs=tuple(lists["hidden-host-sync"]),
            **flags,
        )


NO_FAULTS = Faults()


def known_faults() -> dict[str, str]:
    """Return the name of each fault that takes no argument, and what it does."""
    return {_option(entry.name): entry.metadata["what"] for entry in _flags()}


def split_missing(item: str) -> tuple[str, str]:
    """Return the method and the error's name of one entry of `missing_methods`."""
    name, _, error = item.partition("=")
    return name, error or ("AttributeError" if name.startswith(MODULE_PREFIX) else "RuntimeError")


def _flags() -> list[dataclasses.Field[bool]]:
    return [entry for entry in dataclasses.fields(Faults) if "what" in entry.metadata]


def _option(name: str) -> str:
    return name.replace("_", "-")


def _check_name(name: str, known: Iterable[str], what: str) -> None:
    if name not in known:
        raise SimulatorStateError(
            f"{name!r} is not possible as a fault of {what}. Use one of: {', '.join(known)}."
            + (
                ""
                if what != "a simulated device"
                else " Or missing-method:<method>[=<error>], or hidden-host-sync:<primitive>."
            )
        )
