"""Letting go of what an exception holds, once it was reported."""

from __future__ import annotations

import traceback


def forget(error: BaseException | None) -> None:
    """Clear the frames of an exception and of its causes.

    An exception that a frame of its own keeps is a cycle: its tensors would stay
    until a garbage collection, and an idle process has none.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
