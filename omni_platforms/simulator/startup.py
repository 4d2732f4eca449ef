"""Simulates what the environment asks for, in this process and so in its children.

torch calls `autoload` at the end of `import torch`, as an entry point of the group
`torch.backends`. So every process that imports torch and has `OMNI_SIMULATE` in its
environment comes up simulated, however it was started, if omni-platforms is installed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from omni_platforms import settings
from omni_platforms.errors import SimulatorStateError

if TYPE_CHECKING:
    from omni_platforms.simulator.simulation import Simulation


def autoload() -> None:
    """Simulate what `OMNI_SIMULATE` names; without it, do nothing and import nothing.

    Raises what `start_from_environment` raises, which makes `import torch` fail.
    """
    if os.environ.get("OMNI_SIMULATE", "").strip():
        _check_that_nothing_is_half_imported()
        start_from_environment()


def _check_that_nothing_is_half_imported() -> None:
    for name in [name for name in sys.modules if name.startswith("omni_platforms.simulator.")]:
        spec = sys.modules[name].__spec__
        if name != __name__ and getattr(spec, "_initializing", False):
            raise SimulatorStateError(
                f"{name} is being imported and imports torch, which starts the simulation that "
                "OMNI_SIMULATE asks for, which needs that module. Import torch first."
            )


def start_from_environment() -> Simulation | None:
    """Simulate what the variables `OMNI_SIMULATE...` ask for and return it; `None` for nothing.

    Raises `SettingError` for a bad variable, and what `simulate` raises: also when
    this process simulates something else already.
    """
    name = settings.read("OMNI_SIMULATE")
    if name is None:
        return None
    devices = settings.read("OMNI_SIMULATE_DEVICES")
    memory = settings.read("OMNI_SIMULATE_MEMORY")
    import torch  # noqa: F401 - its end calls `autoload`, which needs the module below whole

    from omni_platforms.simulator.simulation import simulate

    schedule = settings.read("OMNI_SIMULATE_SCHEDULE")
    return simulate(name, devices, memory_limit=memory, schedule=schedule)
