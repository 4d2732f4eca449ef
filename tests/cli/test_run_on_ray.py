"""`omni-platforms run --backend ray`: what it refuses, and a job on a real cluster of Ray."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from omni_platforms import reset_platform, set_current_platform
from omni_platforms.cli import main
from omni_platforms.jobs.modes import choose_mode
from omni_platforms.platform.cpu import CpuPlatform
from tests.cli.test_run import WORKERS, RunCommand, results, run_command, write_requests
from tests.engine.backends import RAY
from tests.ray_nodes import HEAD, Nodes

__all__ = ["run_command"]


@pytest.mark.parametrize("option", [("--address", "a:1"), ("--platform", "cuda"), ("--retries", 1)])
def test_what_is_for_ray_is_refused_without_it(
    run_command: RunCommand, option: tuple[str, object]
) -> None:
    write_requests({"fill": 1})
    result = run_command(*option)
    assert result.exit_code == 2
    assert "for --backend ray" in result.stderr


def test_without_ray_the_remedy_is_said(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    write_requests({"fill": 1})
    result = run_command("--backend", "ray")
    assert result.exit_code == 1
    assert "pip install 'omni-platforms[ray]'" in result.stderr


def test_of_a_platform_elsewhere_auto_takes_async() -> None:
    assert choose_mode("auto", CpuPlatform(), 1).taken == "sync"
    assert choose_mode("auto", CpuPlatform(), 1, elsewhere="cpu").taken == "sync"
    assert str(choose_mode("auto", CpuPlatform(), 1, elsewhere="npu")) == (
        "mode async (auto: npu is on other hosts)"
    )


@pytest.fixture
def run_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunCommand]:
    """As `run_command`, but for what it leaves: Ray's own processes come and go."""
    shutil.copy(WORKERS, tmp_path / "my_worker.py")
    monkeypatch.chdir(tmp_path)
    set_current_platform(CpuPlatform())

    def run(*arguments: object, worker: str = "my_worker.py:Worker") -> Result:
        words = ["run", worker, "--requests", "requests.jsonl", "--out", "out"]
        return CliRunner().invoke(main, [*words, *map(str, arguments)])

    yield run
    reset_platform()


@pytest.fixture
def connected(ray_nodes: Nodes) -> Iterator[Nodes]:
    """A process that is connected already, by an address that the command has no option for."""
    import ray

    ray.init(address=ray_nodes.address, _node_ip_address=HEAD, logging_level="WARNING")
    yield ray_nodes
    assert ray.is_initialized(), "whoever has connected ends that"
    ray.shutdown()


@pytest.mark.parametrize("backend", [pytest.param("ray", marks=[*RAY, pytest.mark.slow])])
def test_a_worker_that_dies_costs_its_own_request_alone(
    connected: Nodes, run_there: RunCommand, backend: str
) -> None:
    good = [{"id": f"g{number}", "fill": number} for number in range(12)]
    kill = {"id": "killer", "kill": "out/results.jsonl:4"}
    write_requests(*good[:6], kill, *good[6:])
    result = run_there(
        *("--backend", backend, "--address", connected.address, "--workers", 2),
        *("--mode", "async", "--window", 1, "--json"),
    )
    assert result.exit_code == 1, result.output
    counts = json.loads(result.stdout)["counts"]
    assert (counts["ok"], counts["failed"], counts["unfinished"]) == (12, 1, 0)
    found = results()
    assert found["killer"]["error"]["type"].endswith("WorkerDiedError")
    assert "killed by SIGKILL" in found["killer"]["error"]["message"]
    for number in range(12):
        file = Path("out", found[f"g{number}"]["output"]["latents"]["file"])
        assert torch.load(file, weights_only=True).eq(number).all()
