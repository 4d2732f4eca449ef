"""The backend of `torch.distributed` for a simulated device, in two real processes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.simulator import Simulation
from omni_platforms.simulator.collectives.backend import backend_name

_SCRIPT = Path(__file__).with_name("two_processes.py")
_ROOT = str(Path(__file__).parents[2])
_ENVIRONMENT = {**os.environ, "PYTHONPATH": _ROOT}

schedules = pytest.mark.parametrize("schedule", ["eager", "lazy", "random:3"])
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each of the two processes found, by rank; run once for all workers of the tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    answer = folder / "two-processes.json"
    with open(folder / "two-processes.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            answer.write_text(json.dumps(run_both(str(folder / "two-processes.store"))))
    found: Found = json.loads(answer.read_text())
    return found


def run_both(where: str) -> Found:
    processes = [
        subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(rank), where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_ENVIRONMENT,
        )
        for rank in (0, 1)
    ]
    try:
        answers = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], answers
    return [json.loads(out) for out, _ in answers]


@schedules
def test_reductions(sim: Simulation, found: Found, schedule: str) -> None:
    for rank, each in enumerate(found):
        assert each[f"{schedule} reductions"] == {
            "all_reduce": [3.0] * 4,
            "reduce_scatter": [3.0] * 4,
            "reduce": None if rank else [3.0] * 4,
            "host waits": 0,
        }


@schedules
def test_gatherings(sim: Simulation, found: Found, schedule: str) -> None:
    for rank, each in enumerate(found):
        assert each[f"{schedule} gatherings"] == {
            "all_gather": [5.0, 6.0],
            "into tensor": [7.0, 8.0],
            "broadcast": [1.0] * 4,
            "all_to_all": [1.0, 2.0],
            "gather": [] if rank else [3.0, 4.0],
            "scatter": [rank + 1.0] * 4,
        }


@schedules
def test_sends_objects_host_tensors_and_data_parallel_models(
    sim: Simulation, found: Found, schedule: str
) -> None:
    for rank, each in enumerate(found):
        assert each[f"{schedule} others"] == {
            "point to point": [40.0 * rank] * 4,
            "objects": [{"rank": 0}, {"rank": 1}],
            "host tensor": [2.0, 2.0],
            "gradients": [1.5] * 4,
        }


def test_a_result_used_before_the_wait_is_wrong(sim: Simulation, found: Found) -> None:
    """Under the lazy schedule each time: nothing but the wait demands the collective."""
    assert [each["lazy wrong"]["doubled"][0] for each in found] == [2.0, 4.0]


@schedules
def test_the_right_twin(sim: Simulation, found: Found, schedule: str) -> None:
    assert [each[f"{schedule} right"]["doubled"][0] for each in found] == [6.0, 6.0]


@schedules
def test_a_process_does_its_part_though_nobody_there_waits(
    sim: Simulation, found: Found, schedule: str
) -> None:
    assert [each[f"{schedule} message"] for each in found] == [{"seen": "3.0", "x": [3.0] * 4}] * 2


@schedules
def test_neither_the_call_nor_the_wait_blocks_the_host(
    sim: Simulation, found: Found, schedule: str
) -> None:
    """Otherwise the two processes would have waited for each other."""
    assert [each[f"{schedule} late"] for each in found] == [{"x": [3.0] * 4, "early": False}] * 2


_ALONE = """
import sys, torch, torch.distributed as dist
from omni_platforms.simulator import simulate
simulate("npu")
dist.init_process_group(init_method="file://" + sys.argv[1], rank=0, world_size=1)
x = torch.ones(4, device="npu")
dist.all_reduce(x)
print(dist.get_default_backend_for_device("npu"), dist.is_backend_available("hccl"), x.tolist())
"""


def test_the_backend_has_its_vendors_name(sim: Simulation, tmp_path: Path) -> None:
    assert [backend_name(n) for n in ("npu", "musa", "sim")] == ["hccl", "mccl", "simccl"]
    command = [sys.executable, "-c", _ALONE, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, env=_ENVIRONMENT)
    assert done.stdout == "hccl True [1.0, 1.0, 1.0, 1.0]\n", done.stderr
