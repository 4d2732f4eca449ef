"""An executor in a small place; run by `test_limits.py`, inside the place that it made.

    python -m tests.engine.limits WORKER MEGABYTES [FOLDER LEAVES]

Takes one small output, one of so many megabytes, and a small one again, and prints what became of
each as a JSON document. With a memory control group's FOLDER the group is left LEAVES megabytes
more than what is used before the large one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from omni_platforms import MultiprocExecutor
from omni_platforms.errors import OmniError

MB = 1 << 20
PATIENCE = 60.0


def outcome(executor: MultiprocExecutor, megabytes: int, value: float) -> str:
    """Return "right", "wrong", or the error of one output."""
    try:
        done = executor.execute_model(("expanded", (value, megabytes * MB // 4)), PATIENCE)
        output = executor.wait_output_ready(done.async_output_id).result(PATIENCE)
    except OmniError as error:
        return f"{type(error).__name__}: {error}"
    return "right" if bool(output.eq(value).all()) else "wrong"


def leave(group: Path, megabytes: int) -> None:
    """Allow a control group so much more than what it uses."""
    used = int((group / "memory.usage_in_bytes").read_text())
    (group / "memory.limit_in_bytes").write_text(str(used + megabytes * MB))


def main() -> None:
    worker, megabytes = sys.argv[1], int(sys.argv[2])
    seen: dict[str, Any] = {}
    with MultiprocExecutor(
        f"tests.engine.workers:{worker}", 1, "cpu", output_timeout=PATIENCE,
        arena_cap=2048 * MB, arena_segment_bytes=16 * MB, arena_initial_bytes=16 * MB,
    ) as executor:  # fmt: skip
        seen["first"] = outcome(executor, 4, 1)
        if len(sys.argv) > 3:
            leave(Path(sys.argv[3]), int(sys.argv[4]))
        seen["large"] = outcome(executor, megabytes, 2)
        seen["healthy"] = executor.check_health()
        seen["next"] = outcome(executor, 4, 3) if seen["healthy"] else ""
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
