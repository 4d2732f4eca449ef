"""NVML by ctypes, against a library that behaves as nvml.h says."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from omni_platforms_cuda.nvml import NvmlError, NvmlMissingError, query_driver

NOT_SUPPORTED, NOT_FOUND = 3, 6


class Nvml:
    """A stand-in for libnvidia-ml.so.1: devices by UUID, each with its MIG parts."""

    def __init__(self, *devices: str, parts: dict[str, list[str]] | None = None) -> None:
        self.devices = devices
        self.parts = parts or {}
        self.failing: dict[str, int] = {}
        self.calls: list[str] = []
        self.handles: dict[int, str] = {}
        self.nvmlErrorString = lambda status: b"Driver/library version mismatch"

    def __getattr__(self, name: str) -> Any:
        function = type(self).__dict__.get("_" + name)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return self.failing.get(name) or function(self, *arguments) or 0

        return call

    def _nvmlInit_v2(self) -> None: ...

    def _nvmlShutdown(self) -> None: ...

    def _nvmlSystemGetDriverVersion(self, buffer: Any, length: Any) -> None:
        buffer.value = b"580.65.06"

    def _nvmlDeviceGetCount_v2(self, number: Any) -> None:
        number._obj.value = len(self.devices)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        self._hand_out(self.devices[index.value], handle)

    def _nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: Any) -> None:
        buffer.value = self.handles[handle.value].encode()

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, number: Any) -> int:
        number._obj.value = 7
        return 0 if self.handles[handle.value] in self.parts else NOT_SUPPORTED

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, handle: Any) -> int:
        parts = self.parts[self.handles[device.value]]
        if index.value >= len(parts):
            return NOT_FOUND
        self._hand_out(parts[index.value], handle)
        return 0

    def _hand_out(self, uuid: str, handle: Any) -> None:
        handle._obj.value = 0x1000 + len(self.handles)
        self.handles[handle._obj.value] = uuid


def test_version_and_devices_are_read_and_nvml_is_shut_down() -> None:
    nvml = Nvml("GPU-a", "GPU-b", parts={"GPU-b": ["MIG-1", "MIG-2"]})
    driver = query_driver(lambda name: nvml)
    assert driver.version == "580.65.06"
    assert driver.uuids == ("GPU-a", "GPU-b")
    assert driver.mig_uuids == ("MIG-1", "MIG-2")
    assert (nvml.calls[0], nvml.calls[-1]) == ("nvmlInit_v2", "nvmlShutdown")


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
def test_a_failing_call_tells_its_name_words_and_code(function: str) -> None:
    nvml = Nvml("GPU-a")
    nvml.failing[function] = 18
    with pytest.raises(NvmlError, match=rf"{function} failed: Driver/library .* status 18"):
        query_driver(lambda name: nvml)
    assert ("nvmlShutdown" in nvml.calls) == (function != "nvmlInit_v2")


def test_a_library_that_is_not_there_differs_from_one_that_is_damaged() -> None:
    def load(words: str) -> Any:
        def fail(name: str) -> Any:
            raise OSError(f"{name}: {words}")

        return fail

    with pytest.raises(NvmlMissingError, match=r"libnvidia-ml\.so\.1"):
        query_driver(load("cannot open shared object file: No such file or directory"))
    with pytest.raises(NvmlError, match="file too short"):
        query_driver(load("file too short"))


def test_the_words_for_a_missing_library_are_this_systems() -> None:
    def load(name: str) -> Any:
        return ctypes.CDLL("libno-such-library-at-all.so.1")

    with pytest.raises(NvmlMissingError):
        query_driver(load)


def test_an_old_library_without_a_function_names_it() -> None:
    with pytest.raises(NvmlError, match=r"no nvmlInit_v2; update"):
        query_driver(lambda name: object())
