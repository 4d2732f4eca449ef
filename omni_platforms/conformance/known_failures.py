"""A vendor's list of known failures: `conformance.toml` beside the plugin's module.

    [[known]]
    test = "test_t3_copies.py::test_an_event_covers_the_copy_before_it"
    kind = "notyet"                 # notimpl: the plugin lacks it; notyet: the vendor's
                                    # stack lacks it; never: the device cannot
    exception = "AssertionError"    # the class of the failure, by name
    reason = "the runtime drops the completion handle of a copy"
    link = "https://..."
    until = 2027-06-30              # optional: from this day on the entry is an error

Beside the entries the file may say `simulate = "NAME"`: the device that
`omni-platforms conform --simulate` simulates, where that is not the platform's name.

The list is strict both ways: another exception is a failure, and a listed test
that passes is one too.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_platforms.errors import KnownFailuresError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("notimpl", "notyet", "never")
_TEXTS = ("test", "kind", "exception", "reason", "link")
_FIELDS = {*_TEXTS, "until"}


@dataclass(frozen=True)
class KnownFailure:
    """One entry of the list."""

    test: str
    kind: str
    exception: str
    reason: str
    link: str
    until: datetime.date | None = None

    def is_over(self, today: datetime.date) -> bool:
        """Whether the entry's last day has come."""
        return self.until is not None and today >= self.until

    def covers(self, error: BaseException) -> bool:
        """Whether `error` is of the class that the entry names, or derived from it."""
        return any(kind.__name__ == self.exception for kind in type(error).__mro__)

    def __str__(self) -> str:
        until = "" if self.until is None else f", until {self.until}"
        return f"{self.kind}: {self.reason} ({self.link}{until})"


def read_known_failures(file: Path) -> dict[str, KnownFailure]:
    """Return the entries of `file` by the test's id. Raises `KnownFailuresError`."""
    document = _read(file)
    entries = document.get("known", [])
    if set(document) - {"known", "simulate"} or not isinstance(entries, list):
        raise KnownFailuresError(f"{file}: expected [[known]] tables and perhaps simulate")
    found: dict[str, KnownFailure] = {}
    for number, entry in enumerate(entries, start=1):
        known = _checked(entry, f"{file}, entry {number}")
        if known.test in found:
            raise KnownFailuresError(f"{file}, entry {number}: {known.test} is there already")
        found[known.test] = known
    return found


def read_simulated_device(file: Path) -> str | None:
    """Return the device that `file` names for `--simulate`, or `None`.

    Raises `KnownFailuresError`.
    """
    name = _read(file).get("simulate")
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise KnownFailuresError(f"{file}: simulate is one device's name, such as sim")
    return name


def _read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        return document
    except (OSError, ValueError) as error:
        raise KnownFailuresError(f"{file} cannot be read: {error}") from error


def _checked(entry: Mapping[str, Any], where: str) -> KnownFailure:
    if set(entry) - _FIELDS or set(_TEXTS) - set(entry):
        raise KnownFailuresError(
            f"{where}: has the fields {sorted(entry)}; it needs {', '.join(_TEXTS)} and may have "
            "until"
        )
    if not all(isinstance(entry[name], str) and entry[name].strip() for name in _TEXTS):
        raise KnownFailuresError(f"{where}: {', '.join(_TEXTS)} are texts that are not empty")
    if entry["kind"] not in KINDS:
        raise KnownFailuresError(f"{where}: kind is one of {', '.join(KINDS)}")
    if type(entry.get("until", datetime.date.min)) is not datetime.date:
        raise KnownFailuresError(f"{where}: until is a date, such as 2027-06-30")
    return KnownFailure(**entry)
