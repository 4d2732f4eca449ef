"""Names of output files, from ids and keys that may be any text."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

BETWEEN = "@"
"""Stands between a request's stem and a leaf's path, and in neither: names cannot collide."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80  # file systems allow 255 bytes a name


def file_stems(ids: Iterable[str]) -> dict[str, str]:
    """Return how the files of each request begin, in one folder.

    An id that is a plain name is its own stem, always. Where it is not, is long, or differs
    from another only in case (which some file systems do not see) a digest is added.
    """
    ids = list(ids)
    plain = {name: _plain(name) for name in ids}
    counts = Counter(stem.casefold() for stem in plain.values())
    return {
        name: stem if stem == name and counts[stem.casefold()] == 1 else f"{stem}-{_digest(name)}"
        for name, stem in plain.items()
    }


def leaf_name(stem: str, path: tuple[str, ...], taken: set[str]) -> str:
    """Return the name of one leaf's file without its suffix, and enter it in `taken`."""
    if not path:
        return stem
    name = _plain(".".join(path))
    if name != ".".join(path) or name.casefold() in taken:
        name = f"{name}-{_digest(repr(path))}"
    taken.add(name.casefold())
    return f"{stem}{BETWEEN}{name}"


def _plain(text: str) -> str:
    return _UNSAFE.sub("_", text)[:_LONGEST].lstrip(".-") or "_"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
