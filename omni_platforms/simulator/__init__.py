"""Simulated accelerators: devices made of Python, on which stream bugs show every time.

`simulate()` gives this process a torch device whose streams run their work in
an order that the schedule decides, so that what works on a real device by luck
fails here each time. `explore` runs a piece of code under all the schedules
that matter::

    from omni_platforms.simulator import explore, simulate

    simulate()

    def scenario():
        source = torch.full((4,), 3.0, device="sim")
        copy = source.to("cpu", non_blocking=True)
        assert copy.tolist() == [3.0] * 4  # read before the copy was waited for

    print(explore(scenario))

It needs a C++ compiler, once for each version of torch. Importing this package
imports neither torch nor anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.simulator.api import explore, replay
    from omni_platforms.simulator.exploration import Exploration
    from omni_platforms.simulator.faults import Faults, known_faults
    from omni_platforms.simulator.platform import SimulatedPlatform
    from omni_platforms.simulator.races import Race
    from omni_platforms.simulator.report import Failure
    from omni_platforms.simulator.simulation import Simulation, installed, simulate

__all__ = [
    "Exploration",
    "Failure",
    "Faults",
    "Race",
    "SimulatedPlatform",
    "Simulation",
    "explore",
    "installed",
    "known_faults",
    "replay",
    "simulate",
]

_ROOM = "omni_platforms.simulator."
_HOMES = {
    "Exploration": _ROOM + "exploration",
    "Failure": _ROOM + "report",
    "Faults": _ROOM + "faults",
    "Race": _ROOM + "races",
    "SimulatedPlatform": _ROOM + "platform",
    "Simulation": _ROOM + "simulation",
    "explore": _ROOM + "api",
    "installed": _ROOM + "simulation",
    "known_faults": _ROOM + "faults",
    "replay": _ROOM + "api",
    "simulate": _ROOM + "simulation",
}

_resolve, __dir__ = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        import torch  # noqa: F401 - before any module here, which torch's start may need whole
    return _resolve(name)
