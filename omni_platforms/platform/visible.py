"""Lists of device numbers in environment variables, such as `MUSA_VISIBLE_DEVICES=0,2`."""

from __future__ import annotations

import re


def visible_indices(value: str | None, count: int) -> tuple[int, ...]:
    """Return which of `count` devices `value` leaves, in its order; `None` leaves all.

    The list is read as CUDA's runtime reads it, and the runtimes made after its
    model (torch 2.13, `torch/cuda/__init__.py`, `_parse_visible_devices`): it
    ends before its first entry that names no device, an entry is read up to its
    first character that is no digit, and a device that is named twice leaves none.
    """
    if value is None:
        return tuple(range(count))
    found: list[int] = []
    for entry in value.split(","):
        number = re.match(r"\+?[0-9]+", entry.strip())
        if number is None or int(number[0]) >= count:
            break
        found.append(int(number[0]))
    return tuple(found) if len(set(found)) == len(found) else ()
