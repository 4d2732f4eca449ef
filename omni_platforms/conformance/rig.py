"""The test rig: work that keeps a device busy, and scenarios that run in every order.

It uses torch's generic interface and never the platform's ordering primitives, so
that a fault of these cannot hide itself. On hardware it takes time to tell what
waited for what; on a simulated device it takes schedules.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from omni_platforms.platform.interface import OmniPlatform

if TYPE_CHECKING:
    from omni_platforms.simulator import Simulation

T = TypeVar("T")

BUSY_SECONDS = 0.3
"""How long `keep_busy` keeps real hardware at work; far more than a call of the host takes."""
DEADLINE_SECONDS = 60.0
"""After this time a wait that should have ended counts as one that never does."""
_MATRIX = 4096
_REPEATS = 3
_DEVICES = 2  # no test works on more


class Busy:
    """Work that was enqueued on one stream."""

    def __init__(self, stream: torch.Stream) -> None:
        self._end = torch.Event(stream.device)
        self._end.record(stream)

    def done(self) -> bool:
        """Whether the work is done. Does not block."""
        return self._end.query()

    def wait(self) -> None:
        """Block the host until the work is done; fail after `DEADLINE_SECONDS`."""
        wait_until(self.done, "the device's work is done")


class Rig:
    """What the tests of streams, memory and executors work with."""

    def __init__(self, platform: OmniPlatform, simulation: Simulation | None) -> None:
        self.platform = platform
        self.simulation = simulation
        self.on_cpu = platform.device_type == "cpu"
        self.device = torch.device("cpu") if self.on_cpu else torch.device(platform.device_type, 0)
        self._home = None if self.on_cpu else torch.accelerator.current_stream(0)
        self._matrices: dict[int, torch.Tensor] = {}
        self._repeats = 0

    @property
    def module(self) -> Any:
        """The vendor's module of torch, `torch.<device type>`."""
        return torch.get_device_module(self.device)

    def on(self, index: int) -> torch.device:
        """Return torch's device number `index`."""
        return torch.device(self.device.type, index)

    @property
    def collectives(self) -> str:
        """The backend of `torch.distributed` to test: the platform's.

        torch keeps the name "xccl" to itself, so a simulated xpu has another one.
        """
        name = self.platform.dist_backend
        return "simccl" if self.simulation is not None and name == "xccl" else name

    # Before and after each test -------------------------------------------------

    def begin(self) -> None:
        """Bring the device and the calling thread back to where every test starts."""
        if self.simulation is not None:
            self.simulation.reset("lazy")
        elif self._home is not None:
            torch.accelerator.set_stream(self._home)
            torch.accelerator.set_device_index(0)
            self.finish()

    def finish(self) -> None:
        """Block the host until the devices that the suite uses have done everything."""
        for index in range(0 if self.on_cpu else min(_DEVICES, torch.accelerator.device_count())):
            self.module.synchronize(index)

    # Busy devices ---------------------------------------------------------------

    def keep_busy(self, stream: torch.Stream | None = None, index: int = 0) -> Busy:
        """Enqueue long work on `stream`, or on the current one of device `index`."""
        if stream is None:
            stream = torch.accelerator.current_stream(index)
        with self.entered(stream):
            if self.simulation is not None:
                torch.ones(4, device=stream.device).mul_(2)
            else:
                self._multiply(self._matrix(stream.device.index), self._repeats)
        return Busy(stream)

    def _matrix(self, index: int) -> torch.Tensor:
        """Return a matrix on a device; the first time, find out how long a product takes."""
        if index not in self._matrices:
            self._matrices[index] = torch.full((_MATRIX, _MATRIX), 1e-4, device=self.on(index))
            self._multiply(self._matrices[index], 3)[0, 0].item()
        if not self._repeats:
            start = time.perf_counter()
            self._multiply(self._matrices[index], 10)[0, 0].item()
            self._repeats = max(2, round(10 * BUSY_SECONDS / (time.perf_counter() - start)))
        return self._matrices[index]

    def _multiply(self, matrix: torch.Tensor, repeats: int) -> torch.Tensor:
        product = torch.empty_like(matrix)
        for _ in range(repeats):
            torch.mm(matrix, matrix, out=product)
        return product

    @contextlib.contextmanager
    def entered(self, stream: torch.Stream) -> Iterator[None]:
        """Make `stream` current inside a `with` block, without the platform's help."""
        device = torch.accelerator.current_device_index()
        before = torch.accelerator.current_stream(stream.device.index)
        torch.accelerator.set_stream(stream)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)
            torch.accelerator.set_device_index(device)

    def waits(self, call: Callable[[], object], index: int = 0) -> bool:
        """Whether `call` makes the host wait for the device's earlier work, each time.

        It is called once beforehand, so that what only a first call has to wait for
        (memory, libraries) does not count; and again when it waited, as on real
        hardware the host may have been away for other reasons.
        """
        call()
        return all(self._waited(call, index) for _ in range(_REPEATS))

    def _waited(self, call: Callable[[], object], index: int) -> bool:
        busy = self.keep_busy(index=index)
        call()
        waited = busy.done()
        busy.wait()
        return waited

    # Scenarios --------------------------------------------------------------------

    def check(self, scenario: Callable[[], object]) -> None:
        """Run `scenario`, which raises when something is wrong, in every order that matters.

        On a simulated device under all schedules, with a detector of races; on
        hardware a few times, where the scenario keeps the device busy itself.
        """
        if self.simulation is not None:
            found = self.simulation.explore(scenario)
            assert found.ok, str(found)
            return
        for _ in range(_REPEATS):
            scenario()
            self.finish()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Block until `condition` holds; fail after `DEADLINE_SECONDS`."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{DEADLINE_SECONDS:.0f} s have gone by before {what}"
        pause.wait(1e-3)


def in_thread(function: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Call `function` on a new thread and return its result; raise what it raises.

    Fails when it has not come back after `seconds`; the thread is then abandoned.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="conformance", daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"it has not come back within {seconds:.0f} s"
    if errors:
        raise errors[0]
    return results[0]
