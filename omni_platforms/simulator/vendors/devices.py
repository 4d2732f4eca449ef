"""What the simulated modules of npu and musa share beyond the neutral one."""

from __future__ import annotations

from typing import Any

from omni_platforms.errors import SimulatorForkedError
from omni_platforms.simulator.device_module import DeviceModule
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.vendors.native import NativeEvent, NativeStream


class VendorDevices(DeviceModule):
    """Devices, native streams and native events of one vendor."""

    native_stream: type[NativeStream] = NativeStream
    native_event: type[NativeEvent] = NativeEvent

    def __init__(self, runtime: Runtime, driver: Driver, generators: DefaultGenerators) -> None:
        super().__init__(runtime, driver, generators)
        names = {"_device": runtime.name, "_module": self, "__doc__": self.native_event.__doc__}
        event = type("Event", (self.native_event,), names)
        neutral = self.Stream

        class Stream(self.native_stream, neutral):  # type: ignore[name-defined,misc,valid-type]
            """A stream of the vendor."""

            _event_class = event

            def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
                """Make a new stream, or wrap the one of `stream_id` and `device_index`."""
                return neutral.__new__(cls, device, priority, **kwargs)

        self.Stream: Any = Stream
        self.Event: Any = event

    def _lazy_init(self) -> None:
        """Start the device, which is started already. Raises in a forked child."""
        if self._is_in_bad_fork():
            raise SimulatorForkedError(
                f"Cannot re-initialize {self._runtime.name} in a forked subprocess. "
                "Start children by the method 'spawn' or 'forkserver'."
            )

    def _checked(self, device: Any) -> int:
        """Return the number of a device; the vendors assert that there is one."""
        index = self._index(device)
        if not 0 <= index < self.device_count():
            raise AssertionError("Invalid device id")
        return index
