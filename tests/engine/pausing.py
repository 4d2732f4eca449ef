"""A consumer that a test stops for a while; run by `test_pauses.py`.

    python -m tests.engine.pausing OUTPUTS WHEN_FULL

Prints the worker's process number when it is busy, and at the end how many outputs were right.
"""

from __future__ import annotations

import sys

from omni_platforms import MultiprocExecutor

MB = 1 << 20
PATIENCE = 120.0


def main() -> None:
    count, when_full = int(sys.argv[1]), sys.argv[2]
    with MultiprocExecutor(
        "tests.engine.workers:Worker", 1, "cpu", arena_cap=16 * MB, arena_segment_bytes=8 * MB,
        output_timeout=PATIENCE, when_full=when_full, window=8,  # type: ignore[arg-type]
    ) as executor:  # fmt: skip
        (process,) = executor._engine.crew.workers.values()
        futures = [executor.submit(("fill", (number, 2 * MB))) for number in range(count)]
        right = 0
        for number, future in enumerate(futures):
            waiting = executor.wait_output_ready(future.async_output_id)
            error = waiting.exception(PATIENCE)
            right += error is None and bool(waiting.result().eq(number).all())
            del waiting
            if number == 20:
                print(process.pid, flush=True)
        print(right, flush=True)


if __name__ == "__main__":
    main()
