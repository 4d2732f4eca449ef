"""`CudaPlatform` without a device: its names exist in torch, and its bookkeeping is right."""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import omni_platforms_cuda
from omni_platforms import Capability, HostRegistrationError
from omni_platforms_cuda import registration
from omni_platforms_cuda.platform import CudaPlatform

SOURCES = sorted(Path(inspect.getfile(omni_platforms_cuda)).parent.glob("*.py"))


def missing_names(source: str) -> list[str]:
    """Return every dotted name below `torch` that `source` reads and torch does not have."""
    names = {
        ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
    }
    dotted = [name.split(".") for name in names if re.fullmatch(r"torch(\.\w+)+", name)]
    return [".".join(parts) for parts in dotted if not _reachable(parts[1:])]


def _reachable(parts: list[str]) -> bool:
    found: Any = torch
    for part in parts:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_every_name_below_torch_exists_in_the_cpu_build_too(file: Path) -> None:
    assert missing_names(file.read_text()) == []


def test_a_name_that_does_not_exist_would_be_seen() -> None:
    assert missing_names("torch.cuda.get_device_nam(0)") == ["torch.cuda.get_device_nam"]


def test_identity_and_what_it_promises() -> None:
    cuda = CudaPlatform()
    assert cuda.is_cuda()
    assert (cuda.device_type, cuda.dist_backend) == ("cuda", "nccl")
    assert cuda.device_control_env_var == "CUDA_VISIBLE_DEVICES"
    assert cuda.capabilities == frozenset(Capability)
    assert cuda.profiler_activity is torch.profiler.ProfilerActivity.CUDA


def test_questions_before_first_use_create_no_context() -> None:
    cuda = CudaPlatform()
    assert cuda.is_capturing() is False
    assert cuda.is_capturing("cuda:0") is False
    assert cuda.release_host_memory() is True
    assert not torch.cuda.is_initialized()


class Properties(SimpleNamespace):
    uuid = "aa-bb"


def test_uuid_is_written_as_nvidia_smi_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties())
    assert CudaPlatform().device_uuid(0) == "GPU-aa-bb"
    monkeypatch.setattr(Properties, "uuid", "MIG-aa")
    assert CudaPlatform().device_uuid(0) == "MIG-aa"


def test_numa_node_is_unknown_where_torch_tells_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties())
    assert CudaPlatform().numa_node(0) is None


def test_sync_debug_restores_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[object] = [2]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    with pytest.raises(KeyError), CudaPlatform().sync_debug("warn"):  # type: ignore[union-attr]
        raise KeyError
    assert modes == [2, "warn", 2]
    with pytest.raises(ValueError, match="'warn' or 'error'"):
        CudaPlatform().sync_debug("loud")


class Cudart:
    """The part of the CUDA runtime that torch exposes."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.calls: list[tuple[object, ...]] = []
        self.cudaError = int

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.calls.append(("register", address, size, flags))
        return self.code

    def cudaHostUnregister(self, address: int) -> int:
        self.calls.append(("unregister", address))
        return self.code

    def cudaGetErrorString(self, code: int) -> str:
        return "out of memory"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(registration, "clear_last_error", lambda: calls.append("cleared"))
    return calls


def test_memory_is_registered_once_and_unregistered_once() -> None:
    cudart, memory = Cudart(), torch.zeros(10, dtype=torch.int16)
    with registration.register(memory, cudart) as registered:
        assert registered.tensor.data_ptr() == memory.data_ptr()
    registered.close()
    address = memory.data_ptr()
    assert cudart.calls == [("register", address, 20, 1), ("unregister", address)]


def test_a_refusal_tells_code_size_and_remedy_and_leaves_no_error(cleared: list[str]) -> None:
    with pytest.raises(HostRegistrationError) as caught:
        registration.register(bytearray(4096), Cudart(code=2))
    for word in ("4096 bytes", "out of memory", "CUDA error 2", "ulimit -l"):
        assert word in str(caught.value)
    assert cleared == ["cleared"]


def test_a_refused_unregistration_is_told_too(cleared: list[str]) -> None:
    cudart = Cudart()
    registered = registration.register(bytearray(64), cudart)
    cudart.code = 713
    with pytest.raises(HostRegistrationError, match="713"):
        registered.close()
    assert cleared == ["cleared"]
    assert not registered.closed


def test_a_forked_child_leaves_its_parents_registration_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cudart = Cudart()
    registered = registration.register(bytearray(64), cudart)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    registered.close()
    assert [call[0] for call in cudart.calls] == ["register"]


def test_memory_that_cannot_be_pinned_is_refused_before_cuda_is_asked() -> None:
    cudart = Cudart()
    for buffer, error in ((b"read-only", TypeError), (bytearray(), ValueError)):
        with pytest.raises(error):
            registration.register(buffer, cudart)
    assert cudart.calls == []
