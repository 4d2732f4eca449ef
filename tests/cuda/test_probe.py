"""What torch's build, the driver and the variable together mean."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from omni_platforms.platform import Probe, ProbeStatus
from omni_platforms.platform.torch_build import TorchBuild
from omni_platforms_cuda import plugin
from omni_platforms_cuda.nvml import NvidiaDriver, NvmlError, NvmlMissingError
from tests.fake_plugins import run_python

CUDA = TorchBuild("2.13.0+cu130", cuda="13.0")
CPU = TorchBuild("2.13.0+cpu")
Query = Callable[[], NvidiaDriver]


def driver(*uuids: str) -> Query:
    return lambda: NvidiaDriver("580.65", uuids)


def failing(error: Exception) -> Query:
    def query() -> NvidiaDriver:
        raise error

    return query


def forbidden() -> NvidiaDriver:
    raise AssertionError("NVML was asked although the build had decided")


TWO = driver("GPU-a", "GPU-b")
MISSING = failing(NvmlMissingError("libnvidia-ml.so.1 was not found"))
DAMAGED = failing(NvmlError("nvmlInit_v2 failed: mismatch (NVML status 18)"))


@pytest.mark.parametrize(
    ("build", "query", "visible", "status", "count", "words"),
    [
        (CUDA, TWO, None, "AVAILABLE", 2, ["2 of 2", "580.65", "13.0"]),
        (CUDA, TWO, "1", "AVAILABLE", 1, ["1 of 2"]),
        (CUDA, TWO, "", "ABSENT", 0, ["CUDA_VISIBLE_DEVICES=''", "none of 2"]),
        (CUDA, TWO, "7", "ABSENT", 0, ["'7'"]),
        (CUDA, driver(), None, "ABSENT", 0, ["no device"]),
        (CUDA, MISSING, None, "ABSENT", 0, ["libnvidia-ml.so.1"]),
        (CUDA, DAMAGED, None, "BROKEN", 0, ["mismatch", "18", "nvidia-smi"]),
        (CPU, TWO, None, "BROKEN", 2, ["2.13.0+cpu", "install a CUDA build", "DISABLE=cuda"]),
        (CPU, TWO, "", "ABSENT", 0, ["none of 2"]),
        (CPU, MISSING, None, "ABSENT", 0, ["no NVIDIA driver"]),
        (TorchBuild("2.9+rocm", hip="7.0"), forbidden, None, "ABSENT", 0, ["rocm's"]),
        (TorchBuild("2.9+xpu", xpu="2025"), forbidden, None, "ABSENT", 0, ["xpu's"]),
    ],
)
def test_judge(
    build: TorchBuild,
    query: Query,
    visible: str | None,
    status: str,
    count: int,
    words: list[str],
) -> None:
    probe = plugin.judge(build, query, visible)
    assert (probe.name, probe.status.value, probe.device_count) == ("cuda", status, count)
    for word in words:
        assert word in probe.reason
    assert probe.versions["torch"] == build.version


@pytest.mark.parametrize("query", [MISSING, driver()])
def test_musas_torch_is_not_cudas(monkeypatch: pytest.MonkeyPatch, query: Query) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: object() if name == "torch_musa" else find(name, *more),
    )
    probe = plugin.judge(CPU, query, None)
    assert probe.status is ProbeStatus.ABSENT
    assert "musa's" in probe.reason


@pytest.mark.parametrize(
    ("version_file", "status", "word"),
    [
        ("__version__ = '2.9.1+cu128'\ncuda = '12.8'\nhip = None\n", "AVAILABLE", "12.8"),
        ("__version__ = '2.9.1+rocm6'\ncuda = None\nhip = '6.4'\n", "ABSENT", "rocm's"),
        ("__version__ = '2.9.1+cpu'\ncuda = None\nhip = None\n", "BROKEN", "CUDA build"),
        ("not python at all (", "BROKEN", "SyntaxError"),
    ],
)
def test_the_whole_probe_through_discovery_with_a_fake_torch(
    tmp_path: Path, version_file: str, status: str, word: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "torch" / "version.py").write_text(version_file)
    code = f"""
    import sys
    from omni_platforms_cuda import plugin
    from omni_platforms_cuda.nvml import NvidiaDriver
    plugin.query_driver = lambda: NvidiaDriver("580.65", ("GPU-a",))
    from omni_platforms.platform import discover
    (cuda,) = discover(only="cuda")
    assert cuda.status.value == {status!r}, cuda
    assert {word!r} in cuda.reason, cuda
    assert "torch" not in sys.modules
    """
    done = run_python(code, tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 0, done.stderr


def test_without_torch_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "read_torch_build", lambda: None)
    probe = plugin.omni_platforms_probe()
    assert probe == Probe("cuda", ProbeStatus.ABSENT, "torch is not installed")


def test_only_its_own_name_is_created() -> None:
    assert plugin.omni_platforms_create("rocm") is None
    made = plugin.omni_platforms_create("cuda")
    assert made is not None
    assert made.is_cuda()
