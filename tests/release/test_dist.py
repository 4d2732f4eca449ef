"""`make dist` finds what is wrong with a wheel or an sdist."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments import ROOT, build_wheel
from tools import check_dist

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def changed(wheel: Path, folder: Path, change: Callable[[Files], object]) -> Path:
    """Return a copy of the wheel with other files in it."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    copy = folder / wheel.name
    with zipfile.ZipFile(copy, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return copy


def rewrite(files: Files, name: str, old: bytes, new: bytes) -> None:
    (path,) = [each for each in files if each.endswith(name)]
    assert old in files[path]
    files[path] = files[path].replace(old, new, 1)


def test_the_wheel_is_as_it_should_be(wheel: Path) -> None:
    assert list(check_dist.wheel_faults(wheel)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda files: files.pop("omni_platforms_npu/py.typed"), "omni_platforms_npu: it has no"),
        (lambda files: files.pop("omni_platforms/simulator/shim.cpp"), "lacks omni_platforms/sim"),
        (lambda files: files.pop("omni_platforms_cuda/plugin.py"), "cuda leads to omni_platforms"),
        (lambda files: files.update({"tests/__init__.py": b""}), "has tests/__init__.py"),
        (lambda files: rewrite(files, "METADATA", b"\nVersion: ", b"\nVersion: 9"), "Version is"),
        (lambda files: rewrite(files, "METADATA", b">=3.10", b">=3.8"), "Requires-Python is"),
        (lambda files: rewrite(files, "METADATA", b"Extra: npu", b"Extra: nqu"), "the extras"),
        (lambda files: rewrite(files, "METADATA", b"# omni-platforms", b"?"), "the description"),
        (lambda files: rewrite(files, "entry_points.txt", b"npu = ", b"nqu = "), "entry points"),
    ],
)
def test_a_fault_of_the_wheel_would_be_seen(
    wheel: Path, tmp_path: Path, change: Callable[[Files], object], fault: str
) -> None:
    faults = list(check_dist.wheel_faults(changed(wheel, tmp_path, change)))
    assert any(fault in each for each in faults), faults


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=90)
    (made,) = folder.glob("*.tar.gz")
    return made


def test_the_sdist_makes_the_same_wheel(sdist: Path, wheel: Path) -> None:
    assert list(check_dist.sdist_faults(sdist, wheel)) == []


def test_another_wheel_than_the_sdist_makes_would_be_seen(wheel: Path, tmp_path: Path) -> None:
    other = changed(wheel, tmp_path, lambda files: files.update({"omni_platforms/_lazy.py": b""}))
    (fault,) = check_dist.differences(wheel, other)
    assert "differs in omni_platforms/_lazy.py" in fault


def test_a_file_that_git_does_not_track_would_be_seen() -> None:
    faults = list(check_dist._sdist_content_faults({"secrets.txt", "README.md"}))
    assert "the sdist lacks pyproject.toml" in faults
    if check_dist._tracked() is not None:
        assert "the sdist has secrets.txt, which git does not track" in faults


def test_a_folder_without_a_wheel_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_dist.main([str(tmp_path)]) == 1
    assert "should have one each" in capsys.readouterr().out
