"""The page on the simulator keeps to what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_platforms.simulator import known_faults
from omni_platforms.simulator.faults import GENERIC_METHODS, HOST_SYNC_PRIMITIVES

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")


def test_every_fault_is_in_the_table_in_the_same_words() -> None:
    for name, what in known_faults().items():
        assert f"| `{name}` | {what} |" in PAGE
    for name in ("missing-method:NAME[=ERROR]", "hidden-host-sync:NAME"):
        assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("name", sorted({*GENERIC_METHODS, *HOST_SYNC_PRIMITIVES}))
def test_every_name_of_a_primitive_is_told(name: str) -> None:
    assert f"`{name}`" in PAGE
