"""Which plugins are installed, read from the distributions' metadata alone.

Nothing is imported here. Distributions are read one by one, so that one with
unreadable metadata hides no other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

from omni_platforms.platform.hookspecs import ENTRY_POINT_GROUP

logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class PluginEntry:
    """One entry point of the group `omni_platforms`, and who offers it."""

    name: str
    distribution: str
    version: str
    value: str
    """What to import: `module` or `module:object`."""

    @property
    def source(self) -> str:
        """The distribution with its version, as messages name it."""
        return f"{self.distribution} {self.version}"

    def load(self) -> Any:
        """Import the plugin; raises whatever its import raises."""
        return EntryPoint(self.name, self.value, ENTRY_POINT_GROUP).load()


def find_entries() -> dict[str, list[PluginEntry]]:
    """Return every plugin's entries by name, both in sorted order.

    More than one entry for a name means that several distributions claim it.
    A distribution that `sys.path` shows twice counts once: the first, which is
    also the one that an import would take.
    """
    found: dict[str, list[PluginEntry]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        for entry in _unseen_entries(distribution, seen):
            found.setdefault(entry.name, []).append(entry)
    return {name: sorted(found[name]) for name in sorted(found)}


def _unseen_entries(distribution: Distribution, seen: set[str]) -> Iterable[PluginEntry]:
    try:
        text = distribution.read_text("entry_points.txt")
        # Reading METADATA is slow: only the few distributions that may matter pay for it.
        if text is None or ENTRY_POINT_GROUP not in text:
            return ()
        name = distribution.metadata["Name"] or "unknown"
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            return ()
        entries = _entries(distribution, name)
    except Exception as error:  # noqa: BLE001 - any damage to foreign metadata, told by name
        logger.warning("The metadata of %s cannot be read: %r", _whereabouts(distribution), error)
        return ()
    seen.add(key)
    return entries


def _entries(distribution: Distribution, name: str) -> set[PluginEntry]:
    version = distribution.version or "unknown"
    return {
        PluginEntry(entry.name, name, version, entry.value)
        for entry in distribution.entry_points
        if entry.group == ENTRY_POINT_GROUP
    }


def _whereabouts(distribution: Distribution) -> str:
    return str(getattr(distribution, "_path", distribution))
