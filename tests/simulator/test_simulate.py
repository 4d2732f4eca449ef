"""`simulate`, `explore` and the test fixture: once for each process, and clear refusals."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from omni_platforms.errors import SimulatorError, SimulatorStateError
from omni_platforms.simulator import Simulation, explore, installed, replay, simulate

ROOT = Path(__file__).parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT
    )


def test_the_same_arguments_give_the_same_object(sim: Simulation) -> None:
    assert simulate("sim", device_count=2) is sim
    assert installed() is sim


def test_other_arguments_are_refused(sim: Simulation) -> None:
    with pytest.raises(SimulatorStateError, match="a process of its own"):
        simulate("sim", device_count=3)
    with pytest.raises(SimulatorError):
        simulate("npu")


def test_explore_and_replay_are_functions_too(sim: Simulation) -> None:
    def scenario() -> None:
        raise ValueError("always")

    found = explore(scenario, seeds=2)
    assert found.schedules == ["eager", "lazy", "random:0", "random:1"]
    assert [failure.schedule for failure in found.failures] == found.schedules
    assert str(found).startswith("4 of 4 schedules failed, 0 races")
    with pytest.raises(ValueError, match="always"):
        replay(scenario, "random:1")


def test_importing_the_package_imports_no_torch() -> None:
    done = run("import sys, omni_platforms.simulator; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_nothing_is_simulated_before_the_call() -> None:
    done = run(
        """
        from omni_platforms.errors import SimulatorStateError
        from omni_platforms.simulator import explore, simulate
        for call in (lambda: explore(print), lambda: simulate("cuda"), lambda: simulate("a b"),
                     lambda: simulate(device_count=0)):
            try:
                call()
            except SimulatorStateError as error:
                print(error)
        """
    )
    lines = done.stdout.splitlines()
    said = ["Call simulate() first", "'cuda' cannot", "'a b' cannot", "Use 1 to 64"]
    assert len(lines) == 4, done.stderr
    assert all(part in line for part, line in zip(said, lines, strict=True)), lines


def test_another_name_in_a_process_of_its_own(simulation: Simulation) -> None:
    done = run(
        """
        import torch
        from omni_platforms.simulator import simulate
        sim = simulate("toy", device_count=3, memory_limit=1 << 20)
        print(torch.ones(2, device="toy:2").add_(1).cpu().tolist(), torch.toy.device_count())
        """
    )
    assert done.stdout.strip() == "[2.0, 2.0] 3", done.stderr


def test_the_cpu_stays_as_it_was(sim: Simulation) -> None:
    import torch

    assert torch.empty(4).device.type == "cpu"
    assert torch.ones(4).cpu().tolist() == [1.0] * 4
    assert not torch.empty(4).is_pinned()
    assert torch.arange(3).sum().item() == 3
    assert sim.host_waits == 0
    assert sim.timeline() == ""


def run_simulated_test(**environment: str) -> subprocess.CompletedProcess[str]:
    test = "tests/simulator/test_platform.py::test_what_it_is"
    base = {name: value for name, value in os.environ.items() if name not in ("CI", "CXX")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**base, "CXX": "no-such-compiler", **environment},
    )


def test_without_a_compiler_simulated_tests_are_skipped_with_a_reason() -> None:
    done = run_simulated_test()
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "simulated: the simulator needs a C++ compiler" in done.stdout


def test_without_a_compiler_simulated_tests_fail_in_ci() -> None:
    done = run_simulated_test(CI="true")
    assert done.returncode == 1
    assert "1 error" in done.stdout or "1 failed" in done.stdout
    assert "simulated: the simulator needs a C++ compiler" in done.stdout
