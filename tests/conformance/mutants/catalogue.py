"""All mutants, and the tests of the suite that no mutant needs, each with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

from omni_platforms.conformance import suite
from tests.conformance.mutants import devices, memory, ordering, plugins, vendors
from tests.conformance.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *plugins.MUTANTS,
    *devices.MUTANTS,
    *ordering.MUTANTS,
    *memory.MUTANTS,
    *vendors.MUTANTS,
]
TARGETS = ("plugin", "sim", "npu")

JUSTIFIED: dict[str, str] = {}


def tests_of_the_suite() -> dict[str, str]:
    """Return the file of each test function of the suite."""
    found: dict[str, str] = {}
    for file in sorted(Path(str(suite.__file__)).parent.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, f"two tests are called {node.name}"
                found[node.name] = file.name
    return found
