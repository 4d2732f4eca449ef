"""Every test that docs/engine-faults.md names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine-faults.md").read_text()
NAMED = re.findall(r"`((?:engine|shm)/\S+\.py)::(\w+)`( \(slow\))?", PAGE)


def named_in(file: Path) -> dict[str, bool]:
    """Return the tests of a file, and whether each is marked slow as a whole."""
    tree = ast.parse(file.read_text())
    all_slow = any(
        isinstance(node, ast.Assign)
        and "pytestmark" in ast.unparse(node)
        and "slow" in ast.unparse(node)
        for node in tree.body
    )
    return {
        node.name: all_slow
        or any(ast.unparse(d).endswith("mark.slow") for d in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_test_that_the_page_names_exists() -> None:
    assert len(NAMED) > 50
    for name, test, slow in NAMED:
        assert named_in(ROOT / "tests" / name).get(test) == bool(slow), f"{name}::{test}"


def test_a_name_that_is_not_there_is_seen() -> None:
    assert "test_no_such_test" not in named_in(ROOT / "tests/engine/test_pauses.py")
