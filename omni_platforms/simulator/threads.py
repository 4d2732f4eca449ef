"""Each thread's current device, and its current stream on each device."""

from __future__ import annotations

import threading

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.task import StreamKey


class _State(threading.local):
    run = -1
    device = 0
    streams: dict[int, int]


class CurrentDevices:
    """What torch calls the current device and the current streams, for each thread.

    A new thread starts on device 0 and on the default streams; so does every
    thread at the start of a run.
    """

    def __init__(self, device_count: int) -> None:
        self.device_count = device_count
        self._run = 0
        self._state = _State()

    def start_run(self) -> None:
        """Let every thread begin anew."""
        self._run += 1

    @property
    def device(self) -> int:
        """The calling thread's current device."""
        return self._mine().device

    def set_device(self, device: int) -> None:
        """Make `device` the calling thread's current one; a negative number changes nothing."""
        if device >= self.device_count:
            raise SimulatorStateError(
                f"there is no device {device}: this process simulates {self.device_count}. "
                "Give simulate() a larger device_count."
            )
        if device >= 0:
            self._mine().device = device

    def exchange_device(self, device: int) -> int:
        """Make `device` the current one and return the one before."""
        before = self.device
        self.set_device(device)
        return before

    def resolve(self, device: int) -> int:
        """Return `device`, or the calling thread's current one for a negative number."""
        return self.device if device < 0 else device

    def stream(self, device: int) -> StreamKey:
        """Return the calling thread's current stream on `device` (negative: the current one)."""
        device = self.resolve(device)
        return device, self._mine().streams.get(device, 0)

    def exchange_stream(self, key: StreamKey) -> StreamKey:
        """Make `key` the current stream of its device and return the one before."""
        before = self.stream(key[0])
        self._mine().streams[before[0]] = key[1]
        return before

    def _mine(self) -> _State:
        state = self._state
        if state.run != self._run:
            state.run, state.device, state.streams = self._run, 0, {}
        return state
