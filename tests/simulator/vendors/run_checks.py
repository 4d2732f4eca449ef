"""Runs all checks of one device name in this process, and prints as JSON what became of each.

The names and arguments of its module are printed too.

`python -m tests.simulator.vendors.run_checks NAME`: one process can simulate one name only.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
import types
from collections.abc import Callable, Iterator

import pytest

from omni_platforms.errors import CompilerMissingError
from omni_platforms.simulator import Simulation, simulate
from tests.simulator.vendors.surface import public_names, surface_of

Check = Callable[[Simulation], None]


MODULES = {
    "npu": ("shared_checks", "fault_checks", "native_checks", "npu_checks"),
    "musa": ("shared_checks", "fault_checks", "native_checks", "musa_checks"),
    "xpu": ("shared_checks", "fault_checks", "xpu_checks"),
}


def modules_of(name: str) -> list[types.ModuleType]:
    return [importlib.import_module(f"tests.simulator.vendors.{part}") for part in MODULES[name]]


def checks_of(name: str) -> Iterator[tuple[str, Check]]:
    for module in modules_of(name):
        for each, check in list(vars(module).items()):
            if each.startswith("check_"):
                yield each, check


def run(check: Check, simulation: Simulation) -> str | None:
    simulation.reset()
    try:
        check(simulation)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - reported by that check's test
        return traceback.format_exc()
    return None


def main(name: str) -> None:
    before = public_names(name)
    try:
        simulation = simulate(name)
    except CompilerMissingError as error:
        print(json.dumps({"skip": str(error)}))
        return
    surface = {"before": before, **surface_of(name)}
    checks = {each: run(check, simulation) for each, check in checks_of(name)}
    print(json.dumps({"surface": surface, "checks": checks}))


if __name__ == "__main__":
    main(sys.argv[1])
