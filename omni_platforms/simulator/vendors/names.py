"""The public names of the vendors' real modules: one file each beside this one."""

from __future__ import annotations

from pathlib import Path


def names_of(package: str) -> frozenset[str]:
    """Return the names in the file of `package`, which has one a line and comments."""
    text = Path(__file__).with_name(f"{package}.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
