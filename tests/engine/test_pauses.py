"""Processes that stand still for ten seconds, stopped by a signal, and go on: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
MB = 1 << 20
OUTPUTS = 1000
CAP = 16 * MB

pytestmark = pytest.mark.slow


def stand_still(who: str, when_full: str = "block") -> tuple[int, float, int]:
    """Stop consumer or worker among 1000 outputs of 8 MB.

    Returns how many outputs were right, and of the other process the share of a processor that it
    took meanwhile, and the shared memory that it had mapped.
    """
    consumer = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.pausing", str(OUTPUTS), when_full],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert consumer.stdout is not None
    try:
        worker = int(consumer.stdout.readline())
        stopped, other = (consumer.pid, worker) if who == "consumer" else (worker, consumer.pid)
        os.kill(stopped, signal.SIGSTOP)
        threading.Event().wait(2)  # it works off what it has
        before = sum(psutil.Process(other).cpu_times()[:2])
        threading.Event().wait(8)
        share = (sum(psutil.Process(other).cpu_times()[:2]) - before) / 8
        mapped = _mapped_bytes(other)
        os.kill(stopped, signal.SIGCONT)
        right = int(consumer.stdout.readline())
        assert consumer.wait(60) == 0
    finally:
        consumer.kill()  # and the worker goes with it, stopped or not
        consumer.stdout.close()
        consumer.wait()
    return right, share, mapped


def _mapped_bytes(pid: int) -> int:
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:omni" in line:
            start, _, end = line.split()[0].partition("-")
            total += int(end, 16) - int(start, 16)
    return total


@pytest.mark.parametrize("who", ["consumer", "worker"])
def test_ten_seconds_lose_nothing_and_cost_nothing(who: str) -> None:
    right, share, mapped = stand_still(who)
    assert right == OUTPUTS
    assert share < 0.02, "whoever waits does nothing"
    assert mapped <= CAP


def test_planted_outputs_that_do_not_wait_for_a_consumer_are_lost() -> None:
    """They need not wait: that is what `when_full="raise"` is for."""
    right, _, mapped = stand_still("consumer", when_full="raise")
    assert right < OUTPUTS
    assert mapped <= CAP
