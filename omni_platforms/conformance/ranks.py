"""One rank of a collective in a process of its own, on the platform that the environment names.

`python -m omni_platforms.conformance.ranks NAME RANK SIZE FILE`: the ranks meet in FILE.
Prints what this rank has as JSON. `run_ranks` starts them all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from omni_platforms.conformance.child import child_environment

_TIMEOUT_S = 240.0


def run_ranks(name: str, size: int) -> list[dict[str, Any]]:
    """Run one process a rank and return what each printed, in the order of their ranks.

    Blocks until all have ended. Raises `RuntimeError` with the errors of all when
    one fails, and `subprocess.TimeoutExpired`; no process is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="omni-ranks-") as folder:
        ranks = [_start(name, rank, size, Path(folder) / "store") for rank in range(size)]
        try:
            answers = [rank.communicate(timeout=_TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        errors = "\n".join(f"rank {n}: {error[-1500:]}" for n, (_, error) in enumerate(answers))
        raise RuntimeError(f"a rank failed:\n{errors}")
    return [json.loads(out.splitlines()[-1]) for out, _ in answers]


def _start(name: str, rank: int, size: int, store: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, name, str(rank), str(size), str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )


def _main(name: str, rank: int, size: int, store: str) -> dict[str, Any]:
    from omni_platforms.conformance.subject import find_subject

    subject = find_subject(name)
    platform = subject.platform
    import torch
    import torch.distributed as dist

    from omni_platforms.conformance.rig import Rig

    rig = Rig(platform, subject.simulation)
    device = platform.device(rank if platform.device_count() > rank else 0)
    platform.set_device(device)
    meeting = dist.FileStore(store, size)  # type: ignore[attr-defined]
    dist.init_process_group(rig.collectives, store=meeting, rank=rank, world_size=size)
    mine = torch.full((4,), float(rank + 1), device=device)
    gathered = torch.empty(4 * size, device=device)
    dist.all_gather_into_tensor(gathered, mine)
    dist.all_reduce(mine)
    found = {"sum": mine.tolist(), "gathered": gathered.tolist(), "device": device.index}
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
