"""What the executors of this process have in hand at this moment, as one JSON-ready document."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from omni_platforms import observers
from omni_platforms.observe.recorder import about_this_process
from omni_platforms.observe.sink import now

VERSION = 1

Document = dict[str, Any]


def snapshot() -> Document:
    """Return one document about every executor and worker of this process that still runs.

    Blocks for no lock that is held for long, and asks a device only whether events are complete;
    not even that while a graph is captured. Any thread may call it.
    """
    return {
        "version": VERSION,
        **about_this_process(),
        "at": now(),
        "time": time.time(),
        "executors": [told for made in observers.live() if (told := describe(made)) is not None],
    }


def describe(made: observers.Made) -> Document | None:
    """Return what one executor, or worker, has; `None` for one that was closed.

    One that cannot be asked has a `problem` instead.
    """
    try:
        about = {"outputs": _outputs, "engine": _engine, "worker": _worker}[made.kind](made.thing)
    except Exception as error:  # noqa: BLE001  the others are to be seen all the same
        about = {"problem": f"{type(error).__name__}: {error}"}
    return None if about is None else {"kind": made.kind, "number": made.number, **about}


def _outputs(executor: Any) -> Document | None:
    if executor.closed:
        return None
    return {
        "device": str(executor.device),
        "platform": executor.platform.name,
        "phases": executor.phases(),
        "oldest": executor.oldest_age(),
        "stats": executor.stats().as_dict(),
    }


def _engine(engine: Any) -> Document | None:
    stats = engine.stats()
    if stats.state == "ended":
        return None
    outputs = engine.asking.describe().outputs
    return {
        "phases": dict(Counter(output.stage.name.lower() for output in outputs)),
        "oldest": max((output.age for output in outputs), default=0.0),
        "stats": stats.as_dict(),
    }


def _worker(parts: Any) -> Document:
    rows = parts.table.describe()
    arena = parts.arena.stats()
    parts.room.wake()  # the question took in what came back, of which a waiting output must hear
    return {
        "rank": parts.rank,
        "device": str(parts.arena.device),
        "platform": parts.arena.platform.name,
        "phases": dict(Counter(row["phase"] for row in rows)),
        "oldest": max((row["seconds"] for row in rows), default=0.0),
        "outputs": rows[:16],
        "arena": {
            "cap": arena.cap,
            "total_bytes": arena.total_bytes,
            "used_bytes": arena.used_bytes,
            "peak_used_bytes": arena.peak_used_bytes,
            "lent": arena.lent,
            "in_flight": arena.in_flight,
            "registered": arena.registered,
        },
    }
