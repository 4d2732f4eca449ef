"""Building the C++ part: two processes at once, no compiler, a broken compiler, a bad cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.errors import CompilerMissingError, ShimBuildError, SimulatorError
from omni_platforms.simulator import build

pytestmark = pytest.mark.timeout(300)
_BUILD = "from omni_platforms.simulator.build import build_shim; print(build_shim())"


def have_compiler() -> bool:
    try:
        return bool(build.find_compiler())
    except CompilerMissingError:
        return False


needs_compiler = pytest.mark.skipif(
    not have_compiler() and os.environ.get("CI") != "true", reason="simulated: no C++ compiler"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@needs_compiler
def test_two_processes_build_at_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler waits until both have come to building, and makes an empty library."""
    calls, here = tmp_path / "calls", tmp_path / "here"
    here.mkdir()
    real = build.find_compiler()[0]
    text = f"""case "$*" in *-shared*) ;; *) exec {real} "$@";; esac
echo x >> {calls}
while [ "$(ls {here} | wc -l)" -lt 2 ]; do sleep 0.02; done
for each in "$@"; do [ "$before" = -o ] && output=$each; before=$each; done
echo | exec {real} -shared -fPIC -x c++ - -o "$output"
"""
    monkeypatch.setenv("CXX", script(tmp_path / "counting-compiler", text))
    announced = (
        f"import pathlib, os; pathlib.Path({str(here)!r}, str(os.getpid())).touch()\n{_BUILD}"
    )
    both = [start(announced), start(announced)]
    answers = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    path = Path(answers[0][0].strip())
    assert answers[1][0].strip() == str(path)
    assert calls.read_text() == "x\n"
    assert {found.name for found in path.parent.iterdir() if found.suffix != ".lock"} == {path.name}
    done = subprocess.run([sys.executable, "-c", _BUILD], capture_output=True, text=True)
    assert done.stdout.strip() == str(path)
    assert calls.read_text() == "x\n"  # the third one found it in the cache


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError, match=r"apt-get install g\+\+") as caught:
        build.build_shim()
    assert isinstance(caught.value, SimulatorError)


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -pipe")
    with pytest.raises(CompilerMissingError, match="CXX=no-such-compiler"):
        build.find_compiler()


def test_a_compiler_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "broken", "exit 3\n"))
    with pytest.raises(CompilerMissingError, match="does not run"):
        build.build_shim()


def test_a_failed_build_shows_the_compiler_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'test "$1" = --version && exec echo 1.0\necho no header Python.h >&2\nexit 1\n'
    monkeypatch.setenv("CXX", script(tmp_path / "failing", text))
    with pytest.raises(ShimBuildError, match=r"no header Python\.h[\s\S]*python3-dev"):
        build.build_shim()
    assert not [path for path in cache.rglob("*.so")]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", script(tmp_path / "any", "echo 1.0\n"))
    with pytest.raises(ShimBuildError, match="Set XDG_CACHE_HOME"):
        build.build_shim()


def test_a_damaged_file_in_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "any", "echo 1.0\n"))
    compiler = build.find_compiler()
    folder = build.cache_folder(compiler, build.compile_command(compiler))
    folder.mkdir(parents=True)
    path = folder / build.build_shim().name  # the script makes an empty file
    assert path.stat().st_size == 0
    with pytest.raises(ShimBuildError, match="Delete the file"):
        build.load_shim()


def test_the_cache_knows_compilers_apart(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compiler"
    folders = set()
    for version in ("12.2", "13.1"):
        compiler = [script(path, f"echo {version}\n")]
        folders.add(build.cache_folder(compiler, build.compile_command(compiler)))
    assert len(folders) == 2
    assert all(folder.is_relative_to(cache / "omni-platforms") for folder in folders)


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    folder = build.cache_folder(["true"], [])
    assert folder.is_relative_to(Path.home() / ".cache")
