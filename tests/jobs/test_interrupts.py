"""Ctrl-C in a process of its own: the first is handled, the second ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.jobs.interrupts import Interrupts

ROOT = Path(__file__).resolve().parents[2]
STUCK = """
import signal, sys, threading
from omni_platforms.jobs.interrupts import Interrupts

def handle():
    print("handled", flush=True)

with Interrupts() as interrupts, interrupts.handled_by(handle):
    print("ready", flush=True)
    threading.Event().wait(60)  # whatever it does: it is stuck
"""


def stuck() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_process_that_is_stuck(number: signal.Signals) -> None:
    process = stuck()
    process.send_signal(number)
    assert process.stdout is not None
    assert process.stdout.readline() == "handled\n"
    assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "ended at once; finished requests are saved" in said


def test_outside_a_job_the_first_one_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert interrupts.exit_status == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does in the background
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
        assert interrupts.signal is None
    finally:
        signal.signal(signal.SIGINT, before)
