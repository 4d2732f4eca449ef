"""Which devices `CUDA_VISIBLE_DEVICES` leaves to this process.

The rules are the CUDA runtime's, as the CUDA C++ Programming Guide 12 tells
them and as torch 2.13 counts by them (`torch/cuda/__init__.py`,
`_parse_visible_devices`): the list ends before its first invalid entry, and a
device that is named twice leaves none at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from omni_platforms_cuda.nvml import NvidiaDriver

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(value: str | None, driver: NvidiaDriver) -> tuple[str, ...]:
    """Return the UUIDs of the devices that `value` of the variable leaves, in its order.

    `None` means that the variable is not set: all devices. An entry is an
    index, a UUID ("GPU-...", "MIG-...") or the unambiguous beginning of one;
    the first entry decides which of these kinds all the others must be.
    """
    if value is None:
        return driver.uuids
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0].startswith("GPU-"):
        found = _until_invalid(entries, lambda entry: _by_uuid(entry, "GPU-", driver.uuids))
    elif entries[0].startswith("MIG-"):
        found = _until_invalid(entries, lambda entry: _by_uuid(entry, "MIG-", driver.mig_uuids))
    else:
        found = _until_invalid(entries, lambda entry: _by_index(entry, driver.uuids))
    return found if len(set(found)) == len(found) else ()


def _until_invalid(entries: Sequence[str], look_up: Callable[[str], str | None]) -> tuple[str, ...]:
    found: list[str] = []
    for entry in entries:
        uuid = look_up(entry)
        if uuid is None:
            break
        found.append(uuid)
    return tuple(found)


def _by_uuid(entry: str, kind: str, uuids: Sequence[str]) -> str | None:
    if not entry.startswith(kind):
        return None
    matches = [uuid for uuid in uuids if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _by_index(entry: str, uuids: Sequence[str]) -> str | None:
    # Like C's strtoul: "1x" is 1, and what does not begin with a number is invalid.
    number = re.match(r"\+?[0-9]+", entry)
    if number is None or int(number[0]) >= len(uuids):
        return None
    return uuids[int(number[0])]
