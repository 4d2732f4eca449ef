"""Every attribute and argument of a vendor's package that a plugin uses exists in the real one.

The uses are found in the plugins' own syntax trees, so a new one is checked without
anybody's doing. torch's `cuda` and `xpu` are those of the installed torch;
torch_npu and pyzes are recorded from their wheels, torch_musa is written down, in
`surfaces/`. `OMNI_VENDOR_WHEELS` (a folder) also compares the record with the wheels.
"""

from __future__ import annotations

import ast
import copy
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.judge import SURFACES, Judge, live_arguments, module_of, surface
from tests.contract.uses import Plugin, Use
from tests.contract.written import NATIVE
from tools.vendor_surface import Member, dump, record

ROOT = Path(__file__).resolve().parents[2]
WHEELS = "OMNI_VENDOR_WHEELS"
VENDORS = ("cuda", "rocm", "npu", "xpu", "musa")
REAL = {
    "torch_npu-2.13.0": "torch_npu",
    "torch_npu-2.14.0": "torch_npu",
    "pyzes-0.1.3": "pyzes",
    "torch_musa-2.7.1": "torch_musa",
}
# C libraries that are opened by name, whose functions test_c_libraries.py checks.
C_LIBRARIES = {"omni_platforms_musa.mtml": {"count_with(library)"}}
# How the plugins write what they take from a vendor.
WRITTEN_SO = re.compile(r"(torch\.(cuda|xpu|_C)|torch_npu|torch_musa|_npu|_musa|pyzes)\b")

Modules = dict[str, ast.Module]


@functools.cache
def modules_of(vendor: str) -> Modules:
    package = f"omni_platforms_{vendor}"
    files = sorted((ROOT / package).glob("*.py"))
    names = [package if f.stem == "__init__" else f"{package}.{f.stem}" for f in files]
    return {n: ast.parse(f.read_text(encoding="utf-8")) for n, f in zip(names, files, strict=True)}


def plugin_of(modules: Modules) -> Plugin:
    return Plugin(modules, ["torch", *sorted(set(REAL.values()))])


@functools.cache
def uses_of(vendor: str) -> frozenset[Use]:
    return frozenset(plugin_of(modules_of(vendor)).uses)


@functools.cache
def judges() -> tuple[Judge, ...]:
    """One for each release of torch_npu."""
    fixed = {package: surface(n) for n, package in REAL.items() if package != "torch_npu"}
    releases = [surface(name) for name, package in REAL.items() if package == "torch_npu"]
    return tuple(Judge({**fixed, "torch_npu": release}) for release in releases)


def complaints(uses: frozenset[Use] | set[Use], judge: Judge | None = None) -> list[str]:
    found = (each.complaint(use) for each in ([judge] if judge else judges()) for use in uses)
    return sorted({complaint for complaint in found if complaint})


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_use_is_real(vendor: str) -> None:
    assert complaints(uses_of(vendor)) == []


@pytest.mark.parametrize("vendor", VENDORS)
def test_nothing_escapes_the_search(vendor: str) -> None:
    plugin = plugin_of(modules_of(vendor))
    assert plugin.dynamic == set()
    untraced = {module: names for module, names in plugin.untraced.items() if names}
    assert untraced == {m: n for m, n in C_LIBRARIES.items() if m in modules_of(vendor)}
    seen = {(use.file, use.line, use.path.rpartition(".")[2]) for use in plugin.uses}
    for module, node in attributes(modules_of(vendor)):
        if WRITTEN_SO.match(ast.unparse(node.value)):
            assert (module, node.lineno, node.attr) in seen, ast.unparse(node)


def attributes(modules: Modules) -> Iterator[tuple[str, ast.Attribute]]:
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                yield module, node


# The planted mistakes ---------------------------------------------------------


def names_in(module: ast.Module) -> Iterator[ast.AST]:
    """The nodes that hold the name of an attribute: `a.name`, and `getattr(a, "name")`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            yield node.args[1]


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else str(getattr(node, "value", ""))


def misspelled(modules: Modules, uses: frozenset[Use]) -> Iterator[tuple[str, Modules]]:
    """Each name of a vendor's misspelled, one at a time."""
    wanted = {(use.file, use.line, use.path.rpartition(".")[2]) for use in uses}
    for module, tree in modules.items():
        for place, node in enumerate(names_in(tree)):
            name = name_of(node)
            if (module, getattr(node, "lineno", 0), name) in wanted:
                planted = copy.deepcopy(tree)
                twin = list(names_in(planted))[place]
                setattr(twin, "attr" if isinstance(twin, ast.Attribute) else "value", f"{name}e")
                yield f"{module}:{getattr(node, 'lineno', 0)}: {name}", {**modules, module: planted}


LEAST = {"cuda": 35, "rocm": 2, "npu": 25, "xpu": 35, "musa": 15}
"""So many names each plugin has at least: a search that finds fewer is broken."""


@pytest.mark.parametrize(("vendor", "least"), LEAST.items())
def test_every_misspelled_name_is_seen(vendor: str, least: int) -> None:
    judge, count = judges()[-1], 0
    for where, modules in misspelled(modules_of(vendor), uses_of(vendor)):
        count += 1
        assert complaints(plugin_of(modules).uses, judge), where
    assert count >= least


def takes_anything(use: Use) -> bool:
    """Whether nobody can say what a call takes: C++ classes and functions, ctypes' structures."""
    found = judges()[-1].find(use.path)
    arguments = found.arguments if isinstance(found, Member) else live_arguments(found)
    return arguments is None or arguments.more_positional


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_call_with_too_many_arguments_or_a_strange_keyword_is_seen(vendor: str) -> None:
    calls = [use for use in uses_of(vendor) if use.call and not takes_anything(use)]
    for use in calls:
        count, keywords, starred = use.call or (0, (), False)
        for call in [(count + 3, keywords, starred), (count, (*keywords, "colour"), starred)]:
            assert complaints({replace(use, call=call)}, judges()[-1]), use
    assert len(calls) >= LEAST[vendor] // 4 or vendor == "rocm"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch_npu.npu.npurt().npuHostRegister(1, 2)", "also needs flags"),
        ("torch_npu.npu.get_device_properties(0).colour", "there is no"),
        ("torch_npu.npu.current_stream().wait()", "nobody says what"),
        ("x = torch.cuda if here else None; x.device_cuont()", "no torch.cuda.device_cuont"),
        ("def f(module): module.mem_get_inof()\nf(torch.xpu)", "no torch.xpu.mem_get_inof"),
        ("def f(): return torch.cuda.cudart()\nf().cudaHostRegister(1)", "also needs"),
        ("with torch_musa.device() as d: pass", "also needs device"),
        ("torch.npu.empty_cache(1)", "takes 0 arguments, not 1"),
        ("from torch.cuda import empty_cash", "there is no torch.cuda.empty_cash"),
        ("torch.accelerator.empty_cash()", "there is no torch.accelerator.empty_cash"),
        ("torch.accelerator.set_device_index()", "also needs"),
    ],
)
def test_a_planted_line_is_refused(line: str, words: str) -> None:
    plugin = plugin_of({"planted": ast.parse(f"import torch, torch_npu, torch_musa\n{line}")})
    assert words in " ".join(complaints(plugin.uses, judges()[-1]))


def test_a_name_that_is_no_constant_is_refused() -> None:
    plugin = plugin_of({"planted": ast.parse("import torch\ngetattr(torch.cuda, name)()")})
    assert plugin.dynamic == {"planted:2: getattr(torch.cuda, name)"}


# The record -------------------------------------------------------------------


def recorded(name: str) -> Mapping[str, object]:
    document: Mapping[str, object] = json.loads((SURFACES / f"{name}.json").read_text())
    return document


def test_the_native_names_were_in_both_wheels() -> None:
    written = {n for path, names in NATIVE.items() if path.startswith("torch_npu") for n in names}
    for name in (name for name, package in REAL.items() if package == "torch_npu"):
        assert set(recorded(name)["native"]) == written  # type: ignore[call-overload]


def test_every_line_of_the_written_table_has_a_source_and_is_used() -> None:
    table = module_of(recorded("torch_musa-2.7.1")).members or {}
    assert all(member.source for member in table.values())
    used = {use.path.removeprefix("torch_musa.") for use in uses_of("musa")}
    assert set(table) <= used
    assert all(member.source for names in NATIVE.values() for member in names.values())


@pytest.mark.parametrize("name", [n for n, package in REAL.items() if package != "torch_musa"])
def test_the_record_is_the_wheels(name: str) -> None:
    folder = os.environ.get(WHEELS)
    if not folder:
        pytest.skip(f"{WHEELS} names no folder of wheels")
    wheels = sorted(Path(folder).glob(f"{name}-*.whl"))
    assert wheels, f"{folder} has no wheel of {name}"
    kept = recorded(name)
    natives = {n for path, names in NATIVE.items() if path.startswith(REAL[name]) for n in names}
    found = json.loads(dump(record(wheels[0], str(kept["module"]), natives)))
    same_file = wheels[0].name == kept["file"]
    ignored = set() if same_file else {"file", "sha256"}  # a wheel for another Python
    assert {k: v for k, v in found.items() if k not in ignored} == {
        k: v for k, v in kept.items() if k not in ignored
    }
