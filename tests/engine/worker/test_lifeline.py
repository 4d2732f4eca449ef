"""The lifeline: processes without torch, so that each case costs little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HELD = "import os, sys; from omni_platforms.engine.worker import lifeline; "
HOLD = "lifeline.hold(int(sys.argv[1])); "
IDLE = "import time; os.write(1, b'up'); time.sleep(60)"
# From the switch interval on, no other Python thread runs.
WITH_GIL = (
    "import ctypes; c = ctypes.PyDLL(None); sys.setswitchinterval(1000); "
    "c.write(1, b'up', 2); c.sleep(2); os._exit(7)"
)
WITHOUT_SIGNALS = "import fcntl; del fcntl.F_SETSIG; "
DEAF = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (15, 2, 1, 29)]; "


def end_of(program: str) -> tuple[int, float]:
    """Run a program that holds a lifeline and let go of its other end.

    Returns how it ended, and after how many seconds.
    """
    theirs, ours = os.pipe()
    command = [sys.executable, "-c", HELD + program, str(theirs)]
    with subprocess.Popen(
        command, pass_fds=[theirs], stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        assert process.poll() is None
        start = time.monotonic()
        os.close(ours)
        return process.wait(20), time.monotonic() - start


@pytest.mark.parametrize(
    "program",
    [HOLD + IDLE, HOLD + WITH_GIL, WITHOUT_SIGNALS + HOLD + IDLE, DEAF + HOLD + WITH_GIL],
    ids=["idle", "with the GIL", "without F_SETSIG", "deaf, with the GIL"],
)
def test_the_other_ends_close_kills(program: str) -> None:
    code, seconds = end_of(program)
    assert code == -signal.SIGKILL
    assert seconds < 1


def test_planted_a_thread_alone_does_not_reach_a_call_that_holds_the_gil() -> None:
    code, seconds = end_of(WITHOUT_SIGNALS + HOLD + WITH_GIL)
    assert code == 7, "it came to its own end"
    assert seconds > 1.5


def test_a_parent_that_was_gone_before_is_noticed() -> None:
    theirs, ours = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-c", HELD + HOLD + WITH_GIL, str(theirs)],
        pass_fds=[theirs],
        env={"PYTHONPATH": str(ROOT)},
        timeout=20,
    )
    os.close(theirs)
    assert done.returncode == -signal.SIGKILL
