"""Parents that exit with work in flight, each in its own way; run by `test_parent_exit.py`.

Arguments: a folder, and how many exits. This process has everything imported and forks
the parents, so that each costs no more than its worker. It prints one JSON document: what it
saw of each parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from omni_platforms import MultiprocExecutor
from tests.engine.test_executor import ROOM

PATIENCE_S = 20.0


def busy_executor(never: str) -> MultiprocExecutor:
    """An executor with an output that arrived, one that is computed, requests and a call."""
    executor = MultiprocExecutor("tests.engine.workers:Worker", 1, "cpu", **ROOM)
    taken = executor.submit(("fill", (1, 9000)))
    busy_executor.kept = executor.wait_output_ready(  # type: ignore[attr-defined]
        taken.async_output_id
    ).result(PATIENCE_S)
    executor.submit(("fill", (2, 9000))).result(PATIENCE_S)
    waiting = executor.submit(("wait_for", never))
    for _ in range(5):
        executor.submit(("fill", (3, 9000)))
    threading.Thread(target=waiting.exception, daemon=True).start()
    executor._ask.call("facts")
    return executor


def returns(executor: MultiprocExecutor) -> None:
    """The main script comes to its end."""


def exits(executor: MultiprocExecutor) -> None:
    sys.exit(3)


def fails(executor: MultiprocExecutor) -> None:
    raise KeyError("the parent fails")


def is_interrupted(executor: MultiprocExecutor) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    executor.execute_model("behind all others")


def exits_under_asyncio(executor: MultiprocExecutor) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(executor.generate("never"))
        await asyncio.sleep(0.02)
        assert not task.done()
        sys.exit(4)

    asyncio.run(main())


WAYS = {returns: 0, exits: 3, fails: 1, is_interrupted: -signal.SIGINT, exits_under_asyncio: 4}


def parent(way: Any, report: str, never: str) -> None:
    """Be a parent with work in flight."""
    executor = busy_executor(never)
    (process,) = executor._engine.crew.workers.values()
    Path(report).write_text(json.dumps([time.time(), process.pid]))
    way(executor)


def watch(number: int, folder: str) -> dict[str, Any]:
    """Fork a parent, and return what is left when it has exited."""
    way, status = list(WAYS.items())[number % len(WAYS)]
    report, errors = f"{folder}/{number}.json", f"{folder}/{number}.txt"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), 2)
        parent(way, report, f"{folder}/never")
        sys.exit(0)  # to the end of the interpreter, with all that it does
    _, code = os.waitpid(child, 0)
    exited = time.time()
    began, worker = json.loads(Path(report).read_text())
    deadline = time.monotonic() + 5
    while psutil.pid_exists(worker) and time.monotonic() < deadline:
        time.sleep(0.005)
    return {
        "way": way.__name__,
        "status": [os.waitstatus_to_exitcode(code), status],
        "seconds": exited - began,
        "worker_left": psutil.pid_exists(worker),
        "printed": Path(errors).read_text(),
    }


def main() -> None:
    folder, count = sys.argv[1], int(sys.argv[2])
    print(json.dumps([watch(number, folder) for number in range(count)]))


if __name__ == "__main__":
    main()
