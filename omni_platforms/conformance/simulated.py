"""Which device `omni-platforms conform NAME --simulate` simulates. Imports no plugin."""

from __future__ import annotations

from omni_platforms.conformance.known_failures import read_simulated_device
from omni_platforms.conformance.subject import known_failures_of, plugin_entry
from omni_platforms.errors import ConformanceSetupError

_NEVER = ("cpu", "cuda", "rocm")


def device_for(name: str) -> str:
    """Return the device that stands for the platform `name`: what its plugin says, or its name.

    A plugin says it with `simulate` in its `conformance.toml`. Raises
    `ConformanceSetupError` for platforms that cannot be simulated, and
    `KnownFailuresError` for a bad file.
    """
    if name in _NEVER:
        raise ConformanceSetupError(
            f"{name} cannot be simulated (docs/simulator.md says why): leave out --simulate"
        )
    entry = plugin_entry(name)
    file = None if entry is None else known_failures_of(entry)
    return (None if file is None else read_simulated_device(file)) or name
