"""`Recorder`: the sink that writes what happens into the ring of this process.

An event is `[kind, track, name, category, begin, end, args]`, times in seconds of CLOCK_MONOTONIC.
`kind` is "span". A track is "t", the thread's number and its name; or "d" and what the device does.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from omni_platforms import observers
from omni_platforms.observe import hub
from omni_platforms.observe.ring import RingWriter
from omni_platforms.observe.sink import Record, Sink, now

DEFAULT_EVENTS = 65_536


class Recorder(Sink):
    """Writes steps of threads, and what devices did, to a file in `folder`.

    The file is made with the first event, so a process that does nothing leaves none. `events`
    is how many it holds. What cannot be written is counted in `refused`, and harms nobody.
    """

    def __init__(self, folder: Path, events: int = DEFAULT_EVENTS) -> None:
        self._folder = folder
        self._events = events
        self._ring: RingWriter | None = None
        self._process = 0
        self._making = threading.Lock()
        self.refused: OSError | None = None

    def step(self, name: str, subject: str) -> _Step:
        """Return a context that writes the step when it ends."""
        return _Step(self._write, name, subject)

    def closed(self, record: Record) -> None:
        """Write what the device did for an output."""
        spans = device_spans(record)
        for (lane, name), (begin, end, clock) in spans.items():
            args = {**record.facts, "from": record.source, "clock": clock}
            args.pop("blocking", None)
            if record.error is not None:
                args["error"] = record.error
            self._write(["span", ["d", lane], f"{name} {record.id}", name, begin, end, args])

    def close(self) -> None:
        """Write no more. The file stays."""
        with self._making:
            self._ring, self._events = None, 0

    def _write(self, event: list[Any]) -> None:
        ring = self._ring
        if ring is None or self._process != os.getpid():
            ring = self._made()
        if ring is not None:
            ring.write(event)

    def _made(self) -> RingWriter | None:
        """Return the ring of this process: a forked child makes one of its own."""
        with self._making:
            if self._process == os.getpid() and self._ring is not None:
                return self._ring
            if not self._events or self.refused is not None:
                return None
            self._process = os.getpid()
            path = self._folder / f"{self._process}-{id(self):x}.ring"
            try:
                self._ring = RingWriter(path, about_this_process(), self._events)
            except OSError as error:
                self.refused = error
                self._ring = None
                hub.logger.warning("no events are recorded: %s", error)
            return self._ring


class _Step:
    """One step of the calling thread."""

    def __init__(self, write: Callable[[list[Any]], None], name: str, subject: str) -> None:
        self._write = write
        self._name = name
        self._subject = subject

    def about(self, subject: str) -> None:
        """Name the output."""
        self._subject = subject

    def __enter__(self) -> None:
        self._begin = now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = now()
        args = {} if kind is None else {"error": kind.__name__}
        title = f"{self._name} {self._subject}".rstrip()
        self._write(["span", this_thread(), title, self._name, self._begin, end, args])


def this_thread() -> list[Any]:
    """Return the track of the calling thread."""
    thread = threading.current_thread()
    return ["t", thread.native_id or thread.ident, thread.name]


def about_this_process() -> dict[str, Any]:
    """Return which process this is, and of which: what rings and snapshots begin with."""
    ranks = [made.thing.rank for made in observers.live() if made.kind == "worker"]
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "command": [argument[:200] for argument in sys.argv[:8]],
        "rank": ranks[0] if ranks else None,
        "boot": _boot(),
    }


def _boot() -> str:
    """Return what names this start of this host, whose clock all moments are of; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


Lane = tuple[str, str]


def device_spans(record: Record) -> dict[Lane, tuple[float, float, str]]:
    """Return what a device did for an output: (track, what): begin, end, and whose clock says so.

    "device": by its own clock; "host": when the host saw it, which is later, and on a busy
    host much later.
    """
    at, device = record.moments, record.device
    if record.kind == "output":
        whose = record.facts.get("stream", "side")
        if whose == "no":
            return {}
        seen = {(f"{whose} stream of {device}", "copy"): _seen_copy(record)}
    elif record.facts.get("blocking"):
        return {}  # threads do it all
    elif record.kind == "work" and {"compute", "copy", "send"} <= at.keys():
        seen = {
            ("forward on " + device, "forward"): (at["compute"], at["copy"]),
            ("side stream of " + device, "copy"): (at["copy"], at["send"]),
        }
    else:
        return {}
    found = {}
    for lane, host in seen.items():
        own = record.spans.get(lane[1])
        if own is not None:
            found[lane] = (*own, "device")
        elif host is not None:
            found[lane] = (*host, "host")
    return found


def _seen_copy(record: Record) -> tuple[float, float] | None:
    """Return the copy of an output as the host saw it; `None` where `submit` made it itself."""
    at = record.moments
    begin = at.get("ready", at.get("handed_over", record.opened))
    end = at.get("copied", begin)
    return (begin, end) if end > begin else None
