"""A parent that a test kills: starts workers, tells their numbers, and waits for its end.

Arguments: what each worker does. It also leaves a forked child of its own behind,
which has copies of every descriptor; the first number printed is that child's.
"""

from __future__ import annotations

import os
import sys
import time

from omni_platforms.engine.messages import Execute
from omni_platforms.engine.payload import Pickled
from tests.engine.driver import process_of


def main() -> None:
    processes = [process_of() for _ in sys.argv[1:]]
    for process, request in zip(processes, sys.argv[1:], strict=True):
        process.wait_started(60)
        process.channel.send(Execute("r", Pickled.of((request, 60.0))))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, *(process.pid for process in processes), flush=True)
    time.sleep(60)


main()  # without a guard: nothing runs this file a second time
