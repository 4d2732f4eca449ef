"""One simulated accelerator in this process: made by `simulate`, used by tests."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import dtypes, exploration
from omni_platforms.simulator.build import load_shim
from omni_platforms.simulator.collectives import backend
from omni_platforms.simulator.fault_switch import FaultSwitch
from omni_platforms.simulator.faults import NO_FAULTS, Faults
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.operators.register import Registration
from omni_platforms.simulator.policy import policy_named
from omni_platforms.simulator.races import Race
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.vendors import vendor_named
from omni_platforms.simulator.vendors.vendor import Vendor

if TYPE_CHECKING:
    from omni_platforms.simulator.collectives.communicator import Communicator
    from omni_platforms.simulator.platform import SimulatedPlatform


@dataclass(frozen=True)
class _Arguments:
    name: str
    device_count: int
    memory_limit: int
    schedule: str
    unsupported_dtypes: frozenset[torch.dtype] = frozenset()


class Simulation:
    """A simulated accelerator. `simulate` makes it; it lasts as long as the process."""

    def __init__(self, arguments: _Arguments) -> None:
        self._arguments = arguments
        self.name = arguments.name
        """torch's device type."""
        vendor = vendor_named(arguments.name)
        self.runtime = Runtime(
            arguments.name,
            arguments.device_count,
            arguments.memory_limit,
            dtypes.supported(arguments.unsupported_dtypes | vendor.unsupported),
        )
        self.runtime.scheduler.start(policy_named(arguments.schedule), None)
        generators = DefaultGenerators(arguments.device_count)
        switch = FaultSwitch(self.runtime, vendor.driver)
        shim = load_shim(vendor.device_type)  # raises before torch's state is changed
        vendor.claim(self.name)
        shim.install(switch.generic_driver)
        self._neutral = type(vendor) is Vendor
        self.module: Any = vendor.install(self.runtime, switch.module_driver, generators)
        """The module `torch.<name>`."""
        self._registration = Registration(self.runtime, generators, shim, vendor.device_type.key)
        backend.register(self.runtime)
        switch.module = self.module
        self._switch = switch
        self._lasting_faults = NO_FAULTS

    def __repr__(self) -> str:
        return f"<Simulation {self.name!r}, {self._arguments.device_count} devices>"

    @cached_property
    def platform(self) -> SimulatedPlatform:
        """The platform object that an engine would use, of a neutral device.

        Raises `SimulatorStateError` for a vendor's device, whose plugin makes its platform.
        """
        from omni_platforms.simulator.platform import SimulatedPlatform

        if not self._neutral:
            raise SimulatorStateError(
                f"the platform of {self.name} comes from its plugin, not from the simulator. "
                f"Set OMNI_SIMULATE={self.name} and call current_platform()."
            )
        return SimulatedPlatform(self.runtime)

    def environment(self) -> dict[str, str]:
        """Return the variables under which a child process simulates the same."""
        return {
            "OMNI_SIMULATE": self.name,
            "OMNI_SIMULATE_DEVICES": str(self._arguments.device_count),
            "OMNI_SIMULATE_MEMORY": str(self._arguments.memory_limit),
            "OMNI_SIMULATE_SCHEDULE": self._arguments.schedule,
        }

    def communicator(self, devices: Sequence[int] | None = None) -> Communicator:
        """Return collectives between `devices` of this process (all of them, for `None`).

        For several processes there is a backend of `torch.distributed` for the device.
        """
        from omni_platforms.simulator.collectives.communicator import Communicator

        return Communicator(self.runtime, devices or range(self._arguments.device_count))

    # Runs ---------------------------------------------------------------------

    def reset(
        self,
        policy: str = "eager",
        *,
        detect_races: bool = False,
        faults: Faults | Iterable[str] | None = None,
    ) -> None:
        """Begin a new run under the schedule named `policy` (see `policy.py`).

        The device has `faults` (see `faults.py`) until the next `reset`; `None`
        means those of `simulate` or of the `faulty` block around the call.

        What is queued is run first, and what failed is forgotten. Every thread
        is on device 0 and its default stream again. Streams of earlier runs
        must not be used any more; tensors may. Counts and cached memory are gone.
        """
        chosen = policy_named(policy)
        wanted = self._lasting_faults if faults is None else Faults.of(faults)
        self.runtime.start_run(chosen, detect_races=detect_races)
        self._switch.switch(wanted)

    @contextlib.contextmanager
    def faulty(self, *faults: str, **more: Any) -> Iterator[None]:
        """Give the device `faults` inside a `with` block, which may hold several runs.

        `more` are fields of `Faults`. What is queued when the block begins or
        ends stays as it is: `reset` first to begin anew. At the end, waits that
        hang because of a fault raise `SimulatedHangError` at once.
        """
        before, lasting = self.runtime.faults.now, self._lasting_faults
        self._lasting_faults = dataclasses.replace(Faults.of(faults), **more)
        self._switch.switch(self._lasting_faults)
        try:
            yield
        finally:
            self._lasting_faults = lasting
            self._switch.switch(before)

    def set_faults(self, faults: Faults | Iterable[str]) -> None:
        """Give the device `faults` from now on, as `simulate(faults=...)` does."""
        self._lasting_faults = Faults.of(faults)
        self._switch.switch(self._lasting_faults)

    def explore(
        self,
        scenario: exploration.Scenario,
        seeds: int = 0,
        *,
        max_streams: int = 8,
        detect_races: bool = True,
    ) -> exploration.Exploration:
        """Run `scenario` under all schedules that matter and return what became of it.

        Each run begins as after `reset`. `seeds` adds random schedules. The
        scenario raises (an assertion, for example) to say that something is
        wrong. At most `max_streams` streams are treated apart; when it uses
        more, the exploration says so and is not `ok`. Raises
        `SimulatorStateError` for a `max_streams` below 1.
        """
        return exploration.explore(self.runtime, scenario, seeds, max_streams, detect_races)

    def replay(self, scenario: exploration.Scenario, schedule: str) -> None:
        """Run `scenario` once under a schedule of a `Failure`; raise what it raises."""
        exploration.replay(self.runtime, scenario, schedule)

    @property
    def races(self) -> set[Race]:
        """The races found in this run, where `reset` was told to detect them."""
        return self.runtime.races()

    def timeline(self) -> str:
        """Return what was enqueued, run and waited for in this run, line by line."""
        return self.runtime.describe()

    @property
    def host_waits(self) -> int:
        """How often any thread of the host waited for a device in this run.

        Each synchronize, blocking copy, `item()` and operator whose shape depends
        on data counts as one, also where the work was done already. Queries do not.
        """
        return self.runtime.scheduler.host_waits.total()

    @property
    def hidden_waits(self) -> dict[str, int]:
        """How often each operator of this run made the host wait for want of a shape function.

        A real device does not wait there: torch cannot tell the shape of the
        results without running the operator, so the simulator has to. The names
        are the operators' ("aten::segment_reduce"); `host_waits` includes them.
        """
        return dict(self.runtime.hidden_waits)

    def host_waits_of(self, thread: threading.Thread | None = None) -> int:
        """Return how often `thread` (the calling one, for `None`) waited in this run."""
        ident = threading.get_ident() if thread is None else thread.ident
        return 0 if ident is None else self.runtime.scheduler.host_waits[ident]


_installed: Simulation | None = None
_lock = threading.Lock()


def simulate(
    name: str = "sim",
    device_count: int = 2,
    *,
    memory_limit: int = 1 << 30,
    schedule: str = "eager",
    unsupported_dtypes: Iterable[torch.dtype] = (),
    faults: Faults | Iterable[str] | None = None,
) -> Simulation:
    """Give this process a simulated accelerator `name` with `device_count` devices.

    `npu`, `musa` and `xpu` come with the vendor's module and its quirks (see
    `vendors`); every other name, such as `sim`, is a neutral device. `memory_limit`
    is each device's memory in bytes; `schedule` holds until the first `reset`. A
    tensor of one of the `unsupported_dtypes` (or of a type without CPU kernels) is
    refused with a `TypeError`, and missing from
    `torch.accelerator.get_device_capability()`. The first call in a fresh environment
    compiles the C++ part (10 to 30 s). A second call with the same arguments returns
    the same object; only `faults` (see `faults.py`) may differ, and are the device's
    from then on. Raises `SimulatorStateError` for other arguments, as torch takes
    one such device for each process, and for a name that this torch has no room for;
    `CompilerMissingError` or `ShimBuildError` where the C++ part cannot be built.
    """
    global _installed
    arguments = _Arguments(
        name, device_count, memory_limit, schedule, frozenset(unsupported_dtypes)
    )
    with _lock:
        if _installed is None:
            _check(arguments)
            _installed = Simulation(arguments)
        if _installed._arguments != arguments:
            raise SimulatorStateError(
                f"this process simulates {_installed._arguments} already, and torch takes one "
                f"such device for each process; {arguments} needs a process of its own."
            )
        if faults is not None:
            _installed.set_faults(faults)
        return _installed


def installed() -> Simulation:
    """Return the simulation of this process. Raises `SimulatorStateError` when there is none."""
    if _installed is None:
        raise SimulatorStateError("nothing is simulated in this process. Call simulate() first.")
    return _installed


def _check(arguments: _Arguments) -> None:
    if not 1 <= arguments.device_count <= 64:
        raise SimulatorStateError(
            f"device_count={arguments.device_count} is not possible. Use 1 to 64."
        )
    refusal = vendor_named(arguments.name).refusal(arguments.name)
    if refusal is not None:
        raise SimulatorStateError(refusal)
