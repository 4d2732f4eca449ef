"""A program with executors, for tests that observe it from outside.

`python -m tests.observe.program DOES [argument]`: what each name does stands below.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from omni_platforms import AsyncOutputExecutor, MultiprocExecutor, current_platform

ROOM: dict[str, Any] = {
    "arena_cap": 4 << 20,
    "arena_segment_bytes": 1 << 20,
    "arena_initial_bytes": 1 << 20,
}


def engine(workers: int = 1) -> MultiprocExecutor:
    return MultiprocExecutor("tests.engine.workers:Worker", workers, **ROOM)


def outputs(count: str = "5") -> None:
    """Hand over some outputs, each with an on_host."""
    device = current_platform().device(0)
    with AsyncOutputExecutor() as executor:
        for number in range(int(count)):
            tensor = torch.full((100_000,), float(number), device=device)
            assert executor.submit(tensor, on_host=torch.sum).result(60) == number * 100_000


def requests(workers: str = "1") -> None:
    """Run four requests, one after the other."""
    with engine(int(workers)) as executor:
        for number in range(4):
            done = executor.execute_model(("fill", (number, 50_000)))
            assert executor.wait_output_ready(done.async_output_id).result(60)[0] == number


def killed(argument: str = "") -> None:
    """Hand over some outputs, and die of SIGKILL."""
    outputs()
    os.kill(os.getpid(), signal.SIGKILL)


def status(argument: str) -> None:
    """Hand over one output, and exit with a status."""
    outputs("1")
    print("the command's own words")
    sys.exit(int(argument))


def nothing(argument: str = "") -> None:
    """Use no executor."""


def serve(folder: str) -> None:
    """Serve requests until the file `stop` is there; say `ready` when the first is done."""
    stop, ready = Path(folder, "stop"), Path(folder, "ready")
    with engine() as executor, AsyncOutputExecutor() as own:
        while not stop.exists():
            done = executor.execute_model(("fill", (1, 50_000)))
            executor.wait_output_ready(done.async_output_id).result(60)
            own.submit(torch.ones(1000), on_host=torch.sum).result(60)
            ready.touch()
            time.sleep(0.01)


def stuck(folder: str) -> None:
    """Have three outputs in flight, the first in its on_host, until the file `stop` is there."""
    stop = Path(folder, "stop")

    def wait(value: Any) -> Any:
        Path(folder, "ready").touch()
        while not stop.exists():
            time.sleep(0.02)
        return value

    with AsyncOutputExecutor() as executor:
        futures = [executor.submit(torch.ones(1000), on_host=wait) for _ in range(3)]
        for future in futures:
            future.result(120)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
