"""What the installed torch was built for, read without importing it.

A probe must tell CUDA, ROCm and CPU builds apart, and importing torch would
take seconds and may start a vendor's stack. torch writes the answer as
constants into `torch/version.py` (torch 2.7 to 2.13: `__version__`, `cuda`,
`hip`, and in later ones `rocm` and `xpu`).
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TorchBuild:
    """The version of torch, and of each vendor's toolkit that it was built with."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None


def read_torch_build() -> TorchBuild | None:
    """Return what the torch on `sys.path` was built for, or `None` where there is none.

    Imports nothing and opens one file. Raises `OSError`, `SyntaxError` or
    `ValueError` when torch is installed and its version file is not readable.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(next(iter(spec.submodule_search_locations)), "version.py")
    constants = _text_constants(file.read_text(encoding="utf-8"))
    if "__version__" not in constants:
        raise ValueError(f"{file} does not say torch's version; reinstall torch")
    return TorchBuild(
        constants["__version__"],
        cuda=constants.get("cuda"),
        hip=constants.get("hip"),
        xpu=constants.get("xpu"),
    )


def _text_constants(source: str) -> dict[str, str]:
    """Return the module-level names of `source` that are assigned a text."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({t.id: value.value for t in targets if isinstance(t, ast.Name)})
    return found
