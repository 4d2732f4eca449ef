"""What of an Ascend stack this machine has, read from files and environment variables.

Nothing of the vendor is imported or loaded: torch_npu without CANN makes
`import torch` itself fail (executed with torch_npu 2.14.0), and its device
calls may leave a later fork unusable.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"

_LIBRARY = "libhccl.so"
"""The first library of CANN that torch_npu asks for (2.14.0, executed)."""
_INSTALL_FOLDERS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/latest")


@dataclass(frozen=True)
class AscendMachine:
    """The parts of the stack: versions, whether CANN can be loaded, and the device files."""

    torch_npu: str | None = None
    """The version of torch_npu, if it is installed."""
    requires_torch: str | None = None
    """The release of torch that this torch_npu was built for, such as "2.14.0"."""
    cann_loads: bool = False
    """Whether the system's loader finds CANN's libraries."""
    cann_folder: str | None = None
    """Where CANN seems to be installed."""
    devices: int = 0
    autoload: bool = True
    """Whether `import torch` imports torch_npu too."""


def look(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> AscendMachine:
    """Look at this machine. Opens files only; raises nothing for what is missing."""
    version, torch = _torch_npu()
    return AscendMachine(
        torch_npu=version,
        requires_torch=torch,
        cann_loads=_loads(environment.get("LD_LIBRARY_PATH", ""), root),
        cann_folder=_cann_folder(environment, root),
        devices=_devices(root / "dev"),
        autoload=environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1",
    )


def visible_count(value: str | None, devices: int) -> int:
    """Count the devices that `ASCEND_RT_VISIBLE_DEVICES` leaves of `devices`.

    As torch_npu 2.14.0 counts (`npu/__init__.py`, `_device_count_ascend_hal`):
    numbers up to the first other character, which must ascend, or none is left;
    the list ends at the first number that is too high.
    """
    if value is None:
        return devices
    numbers = re.match(r"[0-9,]*", value)
    entries = (numbers[0] if numbers else "").split(",")
    found: list[int] = []
    for entry in entries:
        if not entry or int(entry) >= devices:
            break
        if found and int(entry) <= found[-1]:
            return 0
        found.append(int(entry))
    return len(found)


def _torch_npu() -> tuple[str | None, str | None]:
    if importlib.util.find_spec("torch_npu") is None:
        return None, None
    try:
        distribution = importlib.metadata.distribution("torch-npu")
    except importlib.metadata.PackageNotFoundError:  # on the path without being installed
        return "unknown", None
    for requirement in distribution.requires or ():
        pinned = re.match(r"torch\s*\(?==\s*([0-9.]+?)(\.\*)?\)?\s*(;|$)", requirement)
        if pinned:
            return distribution.version, pinned[1]
    return distribution.version, None


def _loads(search_path: str, root: Path) -> bool:
    """Look where the loader looks: its variable, then its cache."""
    folders = [Path(folder) for folder in search_path.split(":") if folder]
    if any((folder / _LIBRARY).exists() for folder in folders):
        return True
    try:
        return _LIBRARY.encode() in (root / "etc/ld.so.cache").read_bytes()
    except OSError:  # no cache on this system
        return False


def _cann_folder(environment: Mapping[str, str], root: Path) -> str | None:
    named = (environment.get("ASCEND_HOME_PATH"), environment.get("ASCEND_TOOLKIT_HOME"))
    usual = [str(root / folder.lstrip("/")) for folder in _INSTALL_FOLDERS]
    return next((name for name in (*named, *usual) if name and Path(name).is_dir()), None)


def _devices(dev: Path) -> int:
    """Count `davinci<number>`, if the manager's own file stands beside them."""
    if not (dev / "davinci_manager").exists():
        return 0
    return sum(1 for node in dev.glob("davinci*") if re.fullmatch(r"davinci[0-9]+", node.name))
