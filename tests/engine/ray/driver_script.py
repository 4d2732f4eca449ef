"""A driver that a test kills: `python driver_script.py ADDRESS HOST FILE`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from omni_platforms.engine.ray import RayExecutor

if __name__ == "__main__":
    address, host, file = sys.argv[1:]
    executor = RayExecutor(
        "tests.engine.ray.node_workers:NodeWorker",
        2,
        "cpu",
        address=address,
        ray_options={"_node_ip_address": host},
        arena_initial_bytes=1 << 20,
        arena_segment_bytes=1 << 20,
        arena_cap=4 << 20,
    )
    pids = [worker["pid"] for worker in executor.collective_rpc("where", timeout=60)]
    executor.submit(("hold_gil", 60.0))
    executor.submit(("wait_for", "/never"))
    Path(file + ".part").write_text(json.dumps(pids))
    Path(file + ".part").rename(file)
    time.sleep(300)
