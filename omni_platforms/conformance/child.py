"""Runs a plugin's probe in a process of its own, and tells what it did there.

`python -m omni_platforms.conformance.child MODULE[:OBJECT] FILE` writes what it
found to FILE as JSON. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/davinci", "/dev/dri/", "/dev/mtgpu", "/dev/accel")
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class ProbeRun:
    """What a probe answered and did, in a process that had not imported anything else."""

    answer: dict[str, Any]
    error: str
    """What importing the plugin or calling the hook raised; empty when nothing."""
    seconds: float
    """How long the hook took, without the import of its module."""
    imported: list[str]
    """The top-level modules that were imported for it."""
    device_files: list[str]
    """Device files that Python opened for it."""
    printed: str


def run_probe(entry: str, **variables: str) -> ProbeRun:
    """Call the probe of the plugin `entry` in a new process and return what it did.

    The process simulates nothing, and has `variables` in its environment. Blocks
    for as long as the probe takes, at most `_TIMEOUT_S` seconds.
    """
    environment = child_environment()
    for name in [name for name in environment if name.startswith("OMNI_SIMULATE")]:
        del environment[name]
    with tempfile.TemporaryDirectory(prefix="omni-conformance-") as folder:
        answer = Path(folder) / "answer.json"
        done = subprocess.run(
            [sys.executable, "-m", __name__, entry, str(answer)],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if not answer.exists():
            raise RuntimeError(
                f"the process of the probe ended with {done.returncode} and no answer: "
                f"{done.stderr[-2000:]}"
            )
        found = json.loads(answer.read_text(encoding="utf-8"))
    return ProbeRun(**found, printed=done.stdout + done.stderr)


def child_environment() -> dict[str, str]:
    """Return an environment in which a child process finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _main(entry: str, file: str) -> None:
    opened: list[str] = []
    sys.addaudithook(lambda event, args: _note_open(event, args, opened))
    before = set(sys.modules)
    answer: dict[str, Any] = {}
    error, seconds = "", 0.0
    try:
        plugin = _load(entry)
        start = time.perf_counter()
        probe = plugin.omni_platforms_probe()
        seconds = time.perf_counter() - start
        answer = _as_json(probe)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the answer, for a test to judge
        error = f"{type(raised).__name__}: {raised}"
    found = {
        "answer": answer,
        "error": error,
        "seconds": seconds,
        "imported": sorted({name.partition(".")[0] for name in set(sys.modules) - before}),
        "device_files": opened,
    }
    Path(file).write_text(json.dumps(found), encoding="utf-8")


def _load(entry: str) -> Any:
    module, _, name = entry.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def _as_json(probe: Any) -> dict[str, Any]:
    from omni_platforms.platform.probe import Probe

    if not isinstance(probe, Probe):
        raise TypeError(f"the probe returned {probe!r}, not a Probe")
    return {
        "name": probe.name,
        "status": probe.status.value,
        "reason": probe.reason,
        "device_count": probe.device_count,
    }


def _note_open(event: str, args: tuple[Any, ...], opened: list[str]) -> None:
    if event == "open" and str(args[0]).startswith(_DEVICE_FILES):
        with contextlib.suppress(TypeError):
            opened.append(str(args[0]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
