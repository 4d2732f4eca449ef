"""Builds and loads the simulator's C++ part, once for each torch, Python and compiler.

The compiled file is kept in the user's cache folder (`$XDG_CACHE_HOME`, or
`~/.cache`). torch's C++ interface differs between its versions, so the file
cannot be shipped in a wheel.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from omni_platforms.errors import CompilerMissingError, ShimBuildError
from omni_platforms.simulator.device_types import PRIVATE_USE_1, DeviceType

SOURCE = Path(__file__).with_name("shim.cpp")
MODULE_NAME = "omni_simulator_shim"
_BUILD_LIMIT_S = 900


def load_shim(device_type: DeviceType = PRIVATE_USE_1) -> ModuleType:
    """Return the compiled module for one device type, building it first where the cache has none.

    A build takes 10 to 20 seconds. Raises `CompilerMissingError` and `ShimBuildError`.
    """
    path = build_shim(device_type)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise ShimBuildError(f"Python cannot load {path}. Delete the file and try again.")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ShimBuildError(
            f"the simulator's compiled part {path} does not load: {error}. "
            "Delete the file, so that it is built again."
        ) from error
    return module


def build_shim(device_type: DeviceType = PRIVATE_USE_1) -> Path:
    """Return the path of the compiled module, building it where the cache has none.

    Several processes may call this at once: one builds while the others wait,
    and the file appears under its name only when it is whole.
    """
    compiler = find_compiler()
    command = compile_command(compiler, device_type)
    path = cache_folder(compiler, command) / (MODULE_NAME + _suffix())
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(command, path)
    except OSError as error:
        raise ShimBuildError(
            f"the simulator cannot store its compiled part in {path.parent}: {error}. "
            "Set XDG_CACHE_HOME to a writable folder."
        ) from error
    return path


def find_compiler() -> list[str]:
    """Return the command of the C++ compiler: `$CXX`, or c++, g++ or clang++ of the `PATH`.

    Raises `CompilerMissingError`.
    """
    asked = shlex.split(os.environ.get("CXX", ""))
    names = [asked[0]] if asked else ["c++", "g++", "clang++"]
    for name in names:
        found = shutil.which(name)
        if found:
            return [found, *asked[1:]]
    tried = "CXX=" + asked[0] if asked else ", ".join(names)
    raise CompilerMissingError(
        f"the simulator needs a C++ compiler, and this machine has none (tried {tried}). "
        "Install one (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; "
        "macOS: xcode-select --install), or name it in CXX."
    )


def compile_command(compiler: list[str], device_type: DeviceType = PRIVATE_USE_1) -> list[str]:
    """Return the command line that builds the module, without the name of its output."""
    root = Path(torch.__file__).parent
    include, libraries = root / "include", root / "lib"
    return [
        *compiler,
        f"-std={_standard()}",
        "-O1",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-w",
        *device_type.defines,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{include}",
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_paths()['include']}",
        str(SOURCE),
        f"-L{libraries}",
        "-lc10",
        "-ltorch_cpu",
        f"-Wl,-rpath,{libraries}",
        *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []),
    ]


def cache_folder(compiler: list[str], command: list[str]) -> Path:
    """Return the folder for one combination of torch, Python, compiler, command and source."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in _sources()))
    digest.update("\0".join([*command, _compiler_version(compiler)]).encode())
    tag = sys.implementation.cache_tag or "python"
    return (
        root
        / "omni-platforms"
        / "simulator"
        / f"torch-{torch.__version__}-{tag}-{digest.hexdigest()[:16]}"
    )


def _sources() -> list[Path]:
    return [SOURCE, *sorted(SOURCE.parent.glob("shim_*.h"))]


def _standard() -> str:
    """The C++ standard of torch's headers: C++20 since 2.10."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return "c++20" if (major, minor) >= (2, 10) else "c++17"


def _suffix() -> str:
    return importlib.machinery.EXTENSION_SUFFIXES[0]


def _compiler_version(compiler: list[str]) -> str:
    try:
        answer = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissingError(
            f"the C++ compiler {shlex.join(compiler)!r} does not run: {error}. "
            "Install a working one, or name it in CXX."
        ) from error
    return answer.stdout.partition("\n")[0]


def _build(command: list[str], path: Path) -> None:
    """Compile into a temporary file, and give it its name when it is whole."""
    handle, temporary = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    try:
        _compile([*command, "-o", temporary])
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise ShimBuildError(
            f"building the simulator took more than {_BUILD_LIMIT_S} s: {shlex.join(command)}. "
            "Try again on a machine that is less busy."
        ) from error
    if done.returncode:
        raise ShimBuildError(
            f"building the simulator failed (exit status {done.returncode}): "
            f"{shlex.join(command)}\n{done.stderr[-4000:]}\n"
            "It needs a compiler for C++20 (g++ 11 or clang 13) and the header files of Python "
            "(Debian and Ubuntu: apt-get install g++ python3-dev)."
        )
