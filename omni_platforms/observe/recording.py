"""Recording a running process for a while, because somebody who attached asks for it."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_platforms.observe import hub
from omni_platforms.observe.recorder import DEFAULT_EVENTS, Recorder

_LONGEST_S = 3600.0


def record(question: Mapping[str, Any], connection: socket.socket) -> dict[str, Any]:
    """Record into `folder` for `seconds`, or until who asked has gone. Returns what failed."""
    seconds = min(float(question["seconds"]), _LONGEST_S)
    recorder = Recorder(Path(question["folder"]), int(question.get("events", DEFAULT_EVENTS)))
    with contextlib.ExitStack() as ending:
        hub.add(recorder)
        ending.callback(recorder.close)
        ending.callback(hub.remove, recorder)
        select.select([connection], [], [], max(0.0, seconds))  # its end: nobody waits any more
    return {"refused": None if recorder.refused is None else str(recorder.refused)}
