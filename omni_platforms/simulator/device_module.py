"""The module `torch.<device>` of a simulated accelerator: what vendors' modules share."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import inductor, native
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.module_graphs import GraphFunctions, graph_class
from omni_platforms.simulator.module_memory import MemoryFunctions
from omni_platforms.simulator.native import PRIVATE_USE_1
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.statistics import MemoryStatistics
from omni_platforms.simulator.task import StreamKey


class DeviceModule(GraphFunctions, MemoryFunctions, types.ModuleType):
    """Devices, streams, memory and random numbers under the names that torch uses.

    Where an argument `device` is left out it means the calling thread's current
    device. Sizes are in bytes.
    """

    def __init__(self, runtime: Runtime, driver: Driver, generators: DefaultGenerators) -> None:
        super().__init__(f"torch.{runtime.name}", self.__doc__)
        self._runtime = runtime
        self._driver = driver
        self._generators = generators
        self.Stream = native.stream_class(self._index, driver)
        self.Event = native.event_class(runtime.name, driver, runtime.faults)
        self.Graph = graph_class(driver)
        self.default_generators = generators.generators

    @property
    def driver(self) -> Driver:
        """What the module's classes call."""
        return self._driver

    def __getattr__(self, name: str) -> Any:
        """Answer inductor, which looks up its code generators here; nothing else."""
        if name in inductor.NAMES:
            return inductor.code_generator(self._runtime.name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _index(self, device: Any = None) -> int:
        """Return the number of a device given as number, name, `torch.device` or `None`."""
        if device is None:
            return self._driver.get_device()
        if isinstance(device, int):
            return device
        found = torch.device(device)
        if found.type != self._runtime.name:
            raise SimulatorStateError(
                f"{found} is not a device of torch.{self._runtime.name}. "
                f"Use {self._runtime.name}:0 or a number."
            )
        return self._driver.get_device() if found.index is None else found.index

    # Devices ------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether there is a device."""
        return self._runtime.device_count > 0

    def is_initialized(self) -> bool:
        """Whether the device was started: always, but in a forked child."""
        return not self._is_in_bad_fork()

    def init(self) -> None:
        """Start the device, which is started already."""

    def _lazy_init(self) -> None:
        """Start the device. torch 2.11 calls only a device with this one initialized, and waits
        for no other."""
        self.init()

    def _is_in_bad_fork(self) -> bool:
        return self._runtime.gate.forked

    def device_count(self) -> int:
        """Count the devices."""
        return self._runtime.device_count

    def current_device(self) -> int:
        """Return the calling thread's current device."""
        return self._driver.get_device()

    def set_device(self, device: Any) -> None:
        """Set the calling thread's current device."""
        self._driver.set_device(self._index(device))

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """Make `device` the current one inside a `with` block."""
        before = self._driver.exchange_device(self._index(device))
        try:
            yield
        finally:
            self._driver.restore_device(before)

    def synchronize(self, device: Any = None) -> None:
        """Block the host until all work of the device is done."""
        self._driver.device_synchronize(self._index(device))

    def get_device_name(self, device: Any = None) -> str:
        """Return the model's name."""
        return f"Simulated {self._runtime.name}"

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Return the compute capability."""
        return (1, 0)

    def get_device_properties(self, device: Any = None) -> types.SimpleNamespace:
        """Return the model's name, its memory in bytes and its unique id."""
        index = self._index(device)
        return types.SimpleNamespace(
            name=self.get_device_name(index),
            total_memory=self._runtime.memory.limit,
            uuid=f"SIM-00000000-0000-0000-0000-{index:012d}",
        )

    # Streams ------------------------------------------------------------------

    def current_stream(self, device: Any = None) -> torch.Stream:
        """Return the calling thread's current stream on `device`."""
        return self._wrap(self._driver.get_stream(self._index(device)))

    def default_stream(self, device: Any = None) -> torch.Stream:
        """Return the default stream of `device`."""
        return self._wrap((self._index(device), 0))

    def _wrap(self, key: StreamKey) -> torch.Stream:
        return self.Stream(stream_id=key[1], device_index=key[0], device_type=PRIVATE_USE_1)

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream`, and its device, the calling thread's current one."""
        self._driver.set_device(stream.device_index)
        self._driver.exchange_stream(stream.device_index, stream.stream_id)

    @contextlib.contextmanager
    def stream(self, stream: torch.Stream | None) -> Iterator[None]:
        """Make `stream` the current one inside a `with` block; `None` changes nothing."""
        if stream is None:
            yield
            return
        if self._runtime.faults.now.stream_context_on_object:
            with stream:  # torch's own, which keeps the previous stream in the stream object
                yield
            return
        device = self._driver.exchange_device(stream.device_index)
        before = self._driver.exchange_stream(stream.device_index, stream.stream_id)
        try:
            yield
        finally:
            self._driver.exchange_stream(*before)
            self._driver.restore_device(device)

    # Memory -------------------------------------------------------------------

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes of all tensors on the device."""
        return self._statistics(device).current("allocated_bytes")

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the peak of `memory_allocated`."""
        return self._statistics(device).peak("allocated_bytes")

    def memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that the allocator holds, cached ones included."""
        return self._statistics(device).current("reserved_bytes")

    def max_memory_reserved(self, device: Any = None) -> int:
        """Return the peak of `memory_reserved`."""
        return self._statistics(device).peak("reserved_bytes")

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Let the peaks be the current values."""
        self._driver.reset_peak_stats(self._index(device))

    def empty_cache(self) -> None:
        """Give cached memory back. Waits for the device."""
        self._driver.empty_cache()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the free and the total bytes."""
        index = self._index(device)
        return self._driver.memory_free(index), self._driver.memory_total(index)

    def _statistics(self, device: Any) -> MemoryStatistics:
        return self._runtime.memory.statistics[self._index(device)]

    # Random numbers -----------------------------------------------------------

    def manual_seed(self, seed: int) -> None:
        """Start the current device's default generator from `seed`."""
        self.default_generators[self._driver.get_device()].manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Start all devices' default generators from `seed`."""
        self._generators.seed_all(int(seed))

    def seed(self) -> None:
        """Start the current device's default generator from a new, unknown seed."""
        self.default_generators[self._driver.get_device()].seed()

    def seed_all(self) -> None:
        """Start all devices' default generators from one new, unknown seed."""
        self._generators.seed_all(self.default_generators[0].seed())

    def initial_seed(self) -> int:
        """Return the seed of the current device's default generator."""
        return self.default_generators[self._driver.get_device()].initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """Return the state of the default generator."""
        return self.default_generators[self._index(device)].get_state()

    def set_rng_state(self, new_state: torch.Tensor, device: Any = None) -> None:
        """Set the state of the default generator."""
        self.default_generators[self._index(device)].set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """Return the states of all devices' default generators."""
        return [generator.get_state() for generator in self.default_generators]

    def set_rng_state_all(self, new_states: list[torch.Tensor]) -> None:
        """Set the states of all devices' default generators."""
        for generator, state in zip(self.default_generators, new_states, strict=True):
            generator.set_state(state)

    # Mixed precision ----------------------------------------------------------

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the types that autocast may use."""
        return [torch.float16, torch.bfloat16]
