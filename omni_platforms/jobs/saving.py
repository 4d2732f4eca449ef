"""One request's output, as files and as the JSON that names them."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

from omni_platforms.jobs.leaves import save_leaf
from omni_platforms.jobs.names import leaf_name

FILE = "file"
"""The key under which the JSON of an output names a leaf's file."""


class OutputSaver:
    """Saves outputs below `folder`, which must exist. Any thread may call it.

    `stems` gives the beginning of each request's files by its id.
    """

    def __init__(self, folder: Path, stems: dict[str, str]) -> None:
        self._folder = folder
        self._stems = stems

    def save(self, request_id: str, output: Any) -> tuple[Any, list[str]]:
        """Save an output; return its JSON, and its files relative to the folder above.

        Dicts, lists, tuples, NamedTuples and dataclasses become objects and arrays; numbers,
        texts and `None` stay; whatever else becomes a file, and an object with "file" in its
        place. Blocks. Raises as `save_leaf`, and `ValueError` for a cycle and for a number that
        JSON cannot write.
        """
        walk = _Walk(self._folder, self._stems[request_id])
        found = walk.json_of(output, ())
        json.dumps(found)  # a number that has no text fails here, where it costs one request
        return found, walk.files


class _Walk:
    """One output. The same object twice is saved once."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._taken: set[str] = set()
        self._saved: dict[int, dict[str, Any]] = {}
        self._inside: set[int] = set()
        self.files: list[str] = []

    def json_of(self, value: Any, path: tuple[str, ...]) -> Any:
        """Return what stands for a value in JSON."""
        value = _plain_number(value)
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        items = _items(value)
        if items is None:
            return self._file(value, path)
        if id(value) in self._inside:
            raise ValueError(f"the output holds itself, at {'.'.join(path) or 'its top'}")
        self._inside.add(id(value))
        found = {key: self.json_of(item, (*path, key)) for key, item in items}
        self._inside.discard(id(value))
        return list(found.values()) if _is_list(value) else found

    def _file(self, leaf: Any, path: tuple[str, ...]) -> dict[str, Any]:
        if id(leaf) not in self._saved:
            name = leaf_name(self._stem, path, self._taken)
            saved = save_leaf(leaf, self._folder / name)
            file = f"{self._folder.name}/{name}{saved.suffix}"
            self.files.append(file)
            self._saved[id(leaf)] = {FILE: file, **saved.facts}
        return self._saved[id(leaf)]


def _plain_number(value: Any) -> Any:
    """Turn a NumPy scalar, or a subclass of a number or text, into the plain kind."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating):
        return value.item() if not isinstance(value, numpy.longdouble) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    for kind in (int, float):
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def _items(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a container with their names, `None` for a leaf."""
    if _is_list(value):
        return [(str(index), item) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return list(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    if isinstance(value, dict):
        keys = [str(key) for key in value]
        return list(zip(keys, value.values(), strict=True)) if len(set(keys)) == len(keys) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return [(name, getattr(value, name)) for name in fields]
    return None
