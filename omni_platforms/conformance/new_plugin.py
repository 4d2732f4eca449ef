"""Writes the package of a new plugin: `omni-platforms new`."""

from __future__ import annotations

import keyword
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

from omni_platforms.errors import PluginNameError

_TEMPLATE = Path(__file__).with_name("template")
_AT_THE_TOP = ("pyproject.toml", "README.md")


def write_plugin(name: str, parent: Path, taken: Collection[str] = ()) -> Path:
    """Write the project `omni-platforms-<name>` as a new folder in `parent`, and return that.

    `taken` are names of platforms that exist. The folder appears whole or not at
    all. Raises `PluginNameError` for a name that cannot be used, or a folder that
    is there already or cannot be made.
    """
    check_name(name, taken)
    project = parent / f"omni-platforms-{_dashed(name)}"
    if project.exists():
        raise PluginNameError(f"{project} is there already: name another folder with --into")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{project.name}-") as scratch:
            whole = Path(scratch) / project.name
            for template in _TEMPLATE.glob("*.in"):
                _write(whole, template, name)
            os.rename(whole, project)
    except OSError as error:
        raise PluginNameError(f"{project} cannot be written: {error}") from error
    return project


def check_name(name: str, taken: Collection[str] = ()) -> None:
    """Raise `PluginNameError`, with the rule, for a name that a new platform cannot have."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.endswith("_") or "__" in name:
        raise PluginNameError(
            f"a platform cannot be called {name!r}: use lower-case letters, digits and single "
            "underscores, with a letter first, such as acme"
        )
    if keyword.iskeyword(name) or name in taken:
        raise PluginNameError(f"the name {name!r} is taken: choose another one")


def _write(project: Path, template: Path, name: str) -> None:
    file = template.name.removesuffix(".in")
    folder = project if file in _AT_THE_TOP else project / f"omni_platforms_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    text = template.read_text(encoding="utf-8")
    for mark, value in _values(name).items():
        text = text.replace(f"@{mark}@", value)
    (folder / file).write_text(text, encoding="utf-8")


def _values(name: str) -> dict[str, str]:
    words = name.split("_")
    return {
        "NAME": name,
        "DASHED": _dashed(name),
        "UPPER": name.upper(),
        "CLASS": "".join(word.capitalize() for word in words),
        "TITLE": " ".join(word.capitalize() for word in words),
    }


def _dashed(name: str) -> str:
    return name.replace("_", "-")
