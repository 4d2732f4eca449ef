"""A simulated module offers nothing that the real one lacks, and takes the same arguments.

torch.xpu is torch's own; its names may not change. torch_npu's files are read from
its wheel and never imported: `OMNI_TORCH_NPU_WHEEL` names a wheel of 2.14.0 or an
unpacked one. No package index has torch_musa: its names are a list of their own.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.simulator.vendors.names import names_of
from tests.simulator.vendors.surface import Arguments

VARIABLE = "OMNI_TORCH_NPU_WHEEL"
FILES = ("__init__", "utils", "memory", "random", "streams", "autocast_utils", "graphs")

pytestmark = [pytest.mark.simulated, pytest.mark.timeout(300)]
Outcome = Callable[[str, str], Any]


@pytest.mark.parametrize(("name", "package"), [("npu", "torch_npu"), ("musa", "torch_musa")])
def test_every_name_is_one_of_the_real_ones(outcome: Outcome, name: str, package: str) -> None:
    found = set(outcome(name, "surface")["names"])
    assert found <= names_of(package)
    assert {"Stream", "Event", "current_stream", "mem_get_info", "empty_cache"} <= found


def test_torchs_own_xpu_has_no_name_more_or_less(outcome: Outcome) -> None:
    assert outcome("xpu", "surface")["names"] == outcome("xpu", "surface")["before"]


def calls_of_torchs_xpu() -> Iterator[tuple[str, int, set[str]]]:
    """Yield the name, the number of arguments and the keywords of each call into `torch._C`."""
    (folder,) = importlib.util.find_spec("torch.xpu").submodule_search_locations  # type: ignore
    for file in sorted(Path(folder).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                target, _, name = ast.unparse(node.func).rpartition(".")
                if name.startswith("_xpu_") and target in ("torch._C", ""):
                    yield name, len(node.args), {each.arg or "" for each in node.keywords}


# Memory pools, graphs, snapshots, queues of others and fractions of memory.
NOT_SIMULATED = {
    "_xpu_beginAllocateCurrentThreadToPool",
    "_xpu_changeCurrentAllocator",
    "_xpu_customAllocator",
    "_xpu_endAllocateToPool",
    "_xpu_getAllocator",
    "_xpu_getMemoryFraction",
    "_xpu_getStreamFromExternal",
    "_xpu_graph_pool_handle",
    "_xpu_memorySnapshot",
    "_xpu_recordMemoryHistory",
    "_xpu_releasePool",
    "_xpu_setMemoryFraction",
}


def test_all_that_torchs_xpu_calls_is_there_or_known_not_to_be(outcome: Outcome) -> None:
    supplied = outcome("xpu", "surface")["functions"]
    calls = list(calls_of_torchs_xpu())
    assert {call for call, _, _ in calls} - supplied.keys() <= NOT_SIMULATED
    for call, count, keywords in calls:
        if call in supplied:
            taken = [each[0] for each in supplied[call]]
            assert count + len(keywords) == len(taken), call
            assert keywords <= set(taken), call


# torch_npu's wheel ------------------------------------------------------------


@functools.cache
def sources() -> dict[str, ast.Module]:
    """The files of `torch_npu/npu` in the wheel or folder that the variable names, parsed."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        pytest.skip(f"torch_npu's wheel: {VARIABLE} names none")
    if os.path.isdir(path):
        texts = {name: Path(path, "torch_npu", "npu", f"{name}.py").read_text() for name in FILES}
    else:
        with zipfile.ZipFile(path) as wheel:
            texts = {name: wheel.read(f"torch_npu/npu/{name}.py").decode() for name in FILES}
    return {name: ast.parse(text) for name, text in texts.items()}


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{node.name}.")


def arguments_of(function: ast.FunctionDef) -> Arguments:
    """The arguments as `surface.py` prints them, without the first of a method."""
    taken = function.args
    plain = taken.posonlyargs + taken.args
    first_default = len(plain) - len(taken.defaults)
    found: Arguments = [
        [each.arg, "POSITIONAL_OR_KEYWORD", place >= first_default]
        for place, each in enumerate(plain)
    ]
    if taken.vararg:
        found.append([taken.vararg.arg, "VAR_POSITIONAL", False])
    found += [
        [each.arg, "KEYWORD_ONLY", default is not None]
        for each, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    ]
    if taken.kwarg:
        found.append([taken.kwarg.arg, "VAR_KEYWORD", False])
    return [each for each in found if each[0] != "self"]


@functools.cache
def real_arguments() -> dict[str, Arguments]:
    found: dict[str, Arguments] = {}
    for tree in sources().values():
        found |= {name: arguments_of(function) for name, function in functions_of(tree)}
    return found


def test_the_list_is_the_wheels() -> None:
    (names,) = [
        ast.literal_eval(node.value)
        for node in sources()["__init__"].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert set(names) == names_of("torch_npu")


def test_functions_take_the_wheels_arguments(outcome: Outcome) -> None:
    real = real_arguments()
    found = outcome("npu", "surface")["functions"]
    for name in found.keys() - real.keys():  # a class in the wheel takes what its `__init__` takes
        real = {**real, name: real[f"{name}.__init__"]}
    differing = {n: (mine, real.get(n)) for n, mine in found.items() if real.get(n) != mine}
    assert not differing
    assert len(found) > 30


def test_streams_and_events_take_the_wheels_arguments(outcome: Outcome) -> None:
    real = real_arguments()
    # These are in the C++ part of the package, whose Python files do not have them.
    native = {"Stream.priority_range"}
    found = {n: mine for n, mine in outcome("npu", "surface")["methods"].items() if n not in native}
    differing = {n: (mine, real.get(n)) for n, mine in found.items() if real.get(n) != mine}
    assert not differing
    assert {"Stream.wait_event", "Event.record", "Event.__new__", "Stream.__new__"} <= set(found)


def test_a_changed_argument_would_be_seen() -> None:
    (function,) = ast.parse("def f(self, device=None, *, x, **rest): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert arguments_of(function) == [
        ["device", "POSITIONAL_OR_KEYWORD", True],
        ["x", "KEYWORD_ONLY", False],
        ["rest", "VAR_KEYWORD", False],
    ]
