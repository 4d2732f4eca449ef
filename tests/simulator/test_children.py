"""A simulated device in other processes: the runner, children by every start method, discovery."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.simulator import Simulation
from tests.fake_plugins import clean_environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the metadata that installing the project would write."""
    info = tmp_path / "site" / "omni_platforms-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: omni-platforms\nVersion: 0.1.0\n")
    text = (ROOT / "pyproject.toml").read_text()
    groups = re.findall(r'^\[project\.entry-points\."?([\w.]+)"?\]\n((?:\w+ = .*\n)+)', text, re.M)
    assert "torch.backends" in dict(groups)
    entries = "".join(f"[{group}]\n{body}" for group, body in groups).replace('"', "")
    (info / "entry_points.txt").write_text(entries)
    return info.parent


def python(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=clean_environment(folder, ROOT, **variables),
        cwd=folder,
        timeout=280,
    )


PROGRAM = """
import json, multiprocessing, os, sys, torch

def add(queue, device):
    try:
        found = (torch.ones(2, device=device) + 1).cpu().tolist()
        queue.put([found, torch.accelerator.device_count()])
    except RuntimeError as error:
        queue.put([type(error).__name__, torch.npu._is_in_bad_fork(), torch.npu.is_initialized()])
        assert torch.ones(2).add(1).sum() == 4  # the CPU still works

def ask(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=add, args=(queue, torch.device("npu", 2)))
    child.start()
    found = queue.get(timeout=120)
    child.join()
    return [*found, child.exitcode]

if __name__ == "__main__":
    answers = {"fork before use": ask("fork")}
    kept = torch.ones(2, device="npu")
    target = (kept + 1).to("cpu", non_blocking=True)
    answers["lazy"] = target.isnan().all().item()
    torch.npu.synchronize()
    answers["right"] = target.tolist()
    for method in ("spawn", "forkserver", "fork"):
        answers[method] = ask(method)
    print(json.dumps([sys.argv[1:], answers, __name__]))
"""


def test_a_program_and_all_its_children_run_simulated(
    simulation: Simulation, installed: Path
) -> None:
    script = installed / "program.py"
    script.write_text(PROGRAM)
    runner = ["-m", "omni_platforms.simulator", "npu", "--device-count", "3", "--schedule", "lazy"]
    done = python(*runner, "--", str(script), "--its-own", "x", folder=installed)
    assert done.returncode == 0, done.stderr
    arguments, answers, name = json.loads(done.stdout)
    assert (arguments, name) == (["--its-own", "x"], "__main__")
    simulated = [[2.0, 2.0], 3, 0]
    assert answers == {
        "fork before use": simulated,
        "lazy": True,
        "right": [2.0, 2.0],
        "spawn": simulated,
        "forkserver": simulated,
        "fork": ["SimulatorForkedError", True, False, 0],
    }
    assert "Exception ignored" not in done.stderr


def test_importing_torch_without_the_variable_starts_nothing(installed: Path) -> None:
    code = """
import sys, torch
print("omni_platforms.simulator.startup" in sys.modules, "omni_platforms.simulator.build" in
      sys.modules, torch._C._get_privateuse1_backend_name())
"""
    done = python("-c", code, folder=installed)
    assert done.stdout.split() == ["True", "False", "privateuseone"], done.stderr


def test_a_bad_variable_stops_the_import_of_torch_by_its_name(installed: Path) -> None:
    done = python(
        "-c", "import torch", folder=installed, OMNI_SIMULATE="npu", OMNI_SIMULATE_DEVICES="none"
    )
    assert done.returncode == 1
    assert "OMNI_SIMULATE_DEVICES='none' is not valid" in done.stderr
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_the_simulator_may_be_imported_before_torch(
    simulation: Simulation, installed: Path
) -> None:
    code = """
from omni_platforms.simulator import installed
print(installed())
"""
    done = python("-c", code, folder=installed, OMNI_SIMULATE="musa")
    assert done.stdout.strip() == "<Simulation 'musa', 2 devices>", done.stderr


def test_an_inner_module_before_torch_is_refused_by_its_name(installed: Path) -> None:
    code = "import omni_platforms.simulator.runtime"
    done = python("-c", code, folder=installed, OMNI_SIMULATE="musa")
    assert done.returncode == 1
    assert "omni_platforms.simulator.runtime is being imported" in done.stderr
    assert "Import torch first" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "NAME"),
        (["npu"], "name a program after --"),
        (["cuda", "--", "x.py"], "'cuda' cannot be simulated"),
        (["npu", "--device-count", "0", "--", "x.py"], "OMNI_SIMULATE_DEVICES"),
    ],
)
def test_the_runner_refuses_with_a_reason(
    simulation: Simulation, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = python("-m", "omni_platforms.simulator", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_runner_runs_a_module_too(simulation: Simulation, tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(
        "import sys, torch; print(sys.argv[1:], torch.sim.device_count(), __name__)"
    )
    runner = ["-m", "omni_platforms.simulator", "sim", "--", "-m", "inner", "a"]
    done = python(*runner, folder=tmp_path)
    assert done.stdout.strip() == "['a'] 2 __main__", done.stderr


SHOW = """
from omni_platforms import current_platform
from omni_platforms.errors import PlatformError
try:
    platform = current_platform()
    print(platform.name, type(platform).__name__)
    import torch
    print((torch.ones(2, device=platform.device(1)) + 1).cpu().tolist())
except PlatformError as error:
    print(type(error).__name__, error)
"""


def test_the_variables_of_a_simulation_make_the_same_in_a_child(
    sim: Simulation, tmp_path: Path
) -> None:
    code = SHOW + "from omni_platforms.simulator import installed; print(installed())"
    done = python("-c", code, folder=tmp_path, **sim.environment())
    assert done.stdout.splitlines() == ["sim SimulatedPlatform", "[2.0, 2.0]", repr(sim)]


@pytest.mark.slow  # CI runs it by `make conform-npu`
def test_a_vendors_plugin_runs_as_it_is(simulation: Simulation, tmp_path: Path) -> None:
    done = python("-c", SHOW, folder=tmp_path, OMNI_SIMULATE="npu")
    assert done.stdout.splitlines() == ["npu NpuPlatform", "[2.0, 2.0]"], done.stderr
    without = python("-c", SHOW, folder=tmp_path, OMNI_PLATFORM="npu")
    assert "PlatformUnavailableError" in without.stdout
