"""What is read off files: torch's build and a PCI device's NUMA node."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from omni_platforms.platform.numa import pci_numa_node
from omni_platforms.platform.torch_build import TorchBuild, read_torch_build


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "torch")
    return package / "version.py"


def test_the_installed_torch_is_read_as_it_says_itself() -> None:
    build = read_torch_build()
    assert build is not None
    version = torch.version
    assert build.version == torch.__version__
    assert (build.cuda, build.hip) == (version.cuda, version.hip)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "__version__ = '2.7.0+cu126'\ncuda = '12.6'\nhip = None\n",
            TorchBuild("2.7.0+cu126", "12.6"),
        ),
        (
            "from typing import Optional\n__version__ = '2.13.0+rocm7.0'\n"
            "cuda: Optional[str] = None\nhip: Optional[str] = '7.0.1'\n",
            TorchBuild("2.13.0+rocm7.0", None, "7.0.1"),
        ),
        (
            "__version__ = '2.9.0+xpu'\nxpu: str = '20250302'\n",
            TorchBuild("2.9.0+xpu", xpu="20250302"),
        ),
    ],
)
def test_each_kind_of_build_is_told_apart(
    fake_torch: Path, text: str, expected: TorchBuild
) -> None:
    fake_torch.write_text(text)
    assert read_torch_build() == expected


def test_a_damaged_version_file_is_an_error(fake_torch: Path) -> None:
    with pytest.raises(OSError, match="version"):
        read_torch_build()
    fake_torch.write_text("cuda = '12.6'\n")
    with pytest.raises(ValueError, match="reinstall torch"):
        read_torch_build()


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("?", None)])
def test_numa_node(tmp_path: Path, text: str, node: int | None) -> None:
    device = tmp_path / "0001:c1:0a.0"
    device.mkdir()
    (device / "numa_node").write_text(text)
    assert pci_numa_node(1, 0xC1, 0x0A, root=tmp_path) == node
    assert pci_numa_node(2, 0xC1, 0x0A, root=tmp_path) is None
