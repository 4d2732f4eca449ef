"""Check the rules of the house that a linter does not know.

Run as `python tools/check_architecture.py`: it prints one line a violation and
exits with 1 when there is any. The rules:

- dependencies point one way (`LAYERS`), and core imports no vendor package;
- only vendor packages and the simulator speak of a vendor's torch module;
- nobody asks for the current platform while a module is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CORE = "omni_platforms"
VENDORS = tuple(f"{CORE}_{name}" for name in ("cuda", "rocm", "npu", "xpu", "musa"))

_BASE = {"_lazy", "errors", "events", "observers", "settings"}
_PLATFORM = _BASE | {"platform"}
_OUTPUTS = _PLATFORM | {"outputs", "shm"}
_ENGINE = _OUTPUTS | {"engine"}
_OBSERVE = _ENGINE | {"observe"}
_TOP = _OBSERVE | {"simulator", "audit"}

# What each part of the core may import besides itself. The package's own file
# only names things for lazy look-up and for type checkers.
LAYERS: dict[str, set[str]] = {
    "__init__": _TOP,
    "__main__": {"cli"},
    "_lazy": set(),
    "errors": set(),
    "events": set(),
    "observers": set(),
    "settings": {"errors"},
    "platform": _BASE,
    "outputs": _PLATFORM,
    "shm": _PLATFORM | {"outputs"},
    "engine": _OUTPUTS,
    "simulator": _PLATFORM,
    "audit": _PLATFORM,
    "observe": _ENGINE,
    "integrations": _ENGINE,
    "jobs": _OBSERVE,
    "demo": _TOP,
    "bench": _TOP,
    "conformance": _TOP,
    "cli": _TOP | {"jobs", "demo", "bench", "conformance"},
}
_VENDOR_MAY_IMPORT = _PLATFORM
# A ROCm build of torch has CUDA's names, so its plugin is a variant of CUDA's.
_VARIANT_OF = {"omni_platforms_rocm": "omni_platforms_cuda"}
# Parts that stand above everything that the package's own public names stand for.
_MAY_USE_PUBLIC_NAMES = {"demo", "bench", "conformance", "cli"}

# Parts whose business is a vendor's module: the simulator makes one.
_SPEAKS_OF_VENDORS = {"simulator"}
_VENDOR_MODULES = ("cuda", "npu", "xpu", "musa")
_VENDOR_WORDS = re.compile(rf"\btorch\.({'|'.join(_VENDOR_MODULES)})\b")


@dataclass(frozen=True)
class Violation:
    """One broken rule, where, and what it says."""

    file: Path
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


def check_tree(root: Path) -> list[Violation]:
    """Check every package of the project in `root`."""
    found: list[Violation] = []
    for package in (CORE, *VENDORS):
        for file in sorted((root / package).rglob("*.py")):
            found.extend(check_source(file.relative_to(root), file.read_text(encoding="utf-8")))
    return found


def check_source(file: Path, source: str) -> list[Violation]:
    """Check one file, given by its path below the project's root and its text."""
    tree = ast.parse(source)
    return [
        *_check_imports(file, tree),
        *_check_vendor_words(file, source, tree),
        *_check_snapshots(file, tree),
    ]


def _part(file: Path) -> str:
    """Return which part of the core a file belongs to: its folder, or its own name."""
    inside = file.parts[1:]
    return inside[0] if len(inside) > 1 else Path(inside[0]).stem


# Imports ----------------------------------------------------------------------


def _check_imports(file: Path, tree: ast.Module) -> Iterator[Violation]:
    vendor = file.parts[0] if file.parts[0] in VENDORS else None
    part = "" if vendor else _part(file)
    allowed = _VENDOR_MAY_IMPORT if vendor else LAYERS.get(part)
    if allowed is None:
        yield Violation(file, 1, "layers", f"{part!r} has no place in LAYERS; give it one")
        return
    for line, package, target in _project_imports(file, tree):
        if package in VENDORS and package not in (vendor, _VARIANT_OF.get(str(vendor))):
            yield Violation(file, line, "vendor-import", f"imports the vendor package {package}")
        elif part in _MAY_USE_PUBLIC_NAMES and target not in LAYERS:
            continue
        elif package == CORE and target not in {*allowed, part}:
            who = vendor or part
            yield Violation(file, line, "layers", f"{who} must not import {CORE}.{target}")


def _project_imports(file: Path, tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield `(line, package, part)` of every import of the project's own modules."""
    for node in ast.walk(tree):
        for name in _imported_names(file, node):
            package, _, rest = name.partition(".")
            if package in {CORE, *VENDORS} and rest != "__version__":
                yield getattr(node, "lineno", 1), package, rest.partition(".")[0]


def _imported_names(file: Path, node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = file.parts[: len(file.parts) - node.level] if node.level else ()
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    return []


# Vendors' modules -------------------------------------------------------------


def _check_vendor_words(file: Path, source: str, tree: ast.Module) -> Iterator[Violation]:
    if file.parts[0] in VENDORS or _part(file) in _SPEAKS_OF_VENDORS:
        return
    for number, line in enumerate(source.splitlines(), start=1):
        for match in _VENDOR_WORDS.finditer(line):
            yield Violation(file, number, "vendor-module", f"speaks of {match[0]}")
    for node in ast.walk(tree):
        hidden = _hidden_vendor_module(node)
        if hidden is not None:
            line_number = getattr(node, "lineno", 1)
            yield Violation(file, line_number, "vendor-module", f"reaches torch's module {hidden}")


def _hidden_vendor_module(node: ast.AST) -> str | None:
    """Return the vendor's module that a node reaches without writing `torch.<name>`."""
    if isinstance(node, ast.ImportFrom) and node.module == "torch":
        return next((a.name for a in node.names if a.name in _VENDOR_MODULES), None)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
        target, name = node.args[0], node.args[1]
        if ast.unparse(target) == "torch" and isinstance(name, ast.Constant):
            return name.value if name.value in _VENDOR_MODULES else None
    return None


# Snapshots --------------------------------------------------------------------


def _check_snapshots(file: Path, tree: ast.Module) -> Iterator[Violation]:
    for call in _calls_at_import(tree):
        if ast.unparse(call.func).split(".")[-1] == "current_platform":
            message = "asks for the current platform at import time; ask when it is used"
            yield Violation(file, call.lineno, "snapshot", message)


def _calls_at_import(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that importing the module makes: not those inside function bodies."""
    if isinstance(node, ast.Call):
        yield node
    for child in _run_at_import(node):
        yield from _calls_at_import(child)


def _run_at_import(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list, node.args]  # defaults are evaluated at once
    if isinstance(node, ast.Lambda):
        return [node.args]
    return ast.iter_child_nodes(node)


def main() -> int:
    """Check the project that this file belongs to; print the violations."""
    violations = check_tree(Path(__file__).resolve().parent.parent)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
