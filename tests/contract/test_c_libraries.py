"""The C functions that plugins call by ctypes exist, and take as many arguments.

NVML and MTML have no Python module; the vendors' own ctypes packages say what
there is (nvidia-ml-py 13.615.71, mthreads-ml-py 2.4.3, recorded by tools/c_calls.py).
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.judge import SURFACES
from tests.contract.test_plugins import ROOT, WHEELS
from tools.c_calls import calls_in, record

PLUGINS = {
    "nvml": ("omni_platforms_cuda/nvml.py", "pynvml"),
    "mtml": ("omni_platforms_musa/mtml.py", "pymtml"),
}
# nvidia-ml-py starts the library by another function. Source: nvml.h of CUDA 12; it was
# executed with the driver of an NVIDIA H200.
WRITTEN = {"nvml": {"nvmlInit_v2": 0}, "mtml": {}}


def source_of(library: str) -> str:
    return (ROOT / PLUGINS[library][0]).read_text()


def real(library: str) -> dict[str, int]:
    calls: dict[str, int] = json.loads((SURFACES / f"{library}.json").read_text())["calls"]
    return {**calls, **WRITTEN[library]}


def uses(source: str, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Yield each C function that a plugin names, and with how many arguments it is called.

    It is an attribute of the library, or the first argument of a method that hands
    the others on, with some more of its own. `None`: it is not called where it is named.
    """
    tree = ast.parse(source)
    more = dict(handed_on(tree))
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(f"{prefix}[A-Z]", node.attr):
            call = called.get(id(node))
            yield node.attr, None if call is None else len(call.args)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and re.match(f"{prefix}[A-Z]", str(name.value)):
                yield str(name.value), len(node.args) - 1 + more[node.func.attr]


def handed_on(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each method that takes a function's name and `*arguments`, and what it adds to them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.args.vararg:
            for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
                starred = [isinstance(each, ast.Starred) for each in call.args]
                if True in starred:
                    yield node.name, len(call.args) - starred.index(True) - 1


def complaints(source: str, library: str) -> list[str]:
    found = real(library)
    wrong = []
    for name, count in uses(source, library):
        if name not in found:
            wrong.append(f"there is no {name}")
        elif count not in (None, found[name]):
            wrong.append(f"{name} takes {found[name]} arguments, not {count}")
    return wrong


@pytest.mark.parametrize(("library", "least"), [("nvml", 9), ("mtml", 3)])
def test_every_function_is_real(library: str, least: int) -> None:
    assert complaints(source_of(library), library) == []
    assert len({name for name, _ in uses(source_of(library), library)}) >= least


@pytest.mark.parametrize("library", PLUGINS)
def test_every_misspelled_function_is_seen(library: str) -> None:
    for name in {name for name, _ in uses(source_of(library), library)}:
        planted = re.sub(rf"\b{name}\b", f"{name}x", source_of(library))
        assert f"there is no {name}x" in complaints(planted, library)


@pytest.mark.parametrize(
    ("library", "line", "planted"),
    [
        ("mtml", "mtmlLibraryCountDevice(handle, ", "mtmlLibraryCountDevice("),
        ("nvml", '"nvmlDeviceGetUUID", device', '"nvmlDeviceGetUUID"'),
        ("nvml", "*arguments, ctypes.byref(number)", "*arguments"),
    ],
)
def test_a_wrong_number_of_arguments_is_seen(library: str, line: str, planted: str) -> None:
    source = source_of(library)
    assert line in source
    assert "arguments, not" in " ".join(complaints(source.replace(line, planted), library))


def test_the_reader_follows_the_name_to_the_call() -> None:
    source = "def f(x):\n fn = _aGetFunctionPointer('aInit')\n ret = fn(x, 2)\n fn = g\n"
    assert calls_in(source) == {"aInit": 2}


@pytest.mark.parametrize("library", PLUGINS)
def test_the_record_is_the_wheels(library: str) -> None:
    folder = os.environ.get(WHEELS)
    if not folder:
        pytest.skip(f"{WHEELS} names no folder of wheels")
    kept = json.loads((SURFACES / f"{library}.json").read_text())
    assert record(Path(folder) / kept["file"], PLUGINS[library][1]) == kept
