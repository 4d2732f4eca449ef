"""Read from a vendor's ctypes package which C functions there are, and what each takes.

The packages nvidia-ml-py and mthreads-ml-py look a C function up by its name and
call it at once; nothing of them is imported. As a program it records a wheel:

    python tools/c_calls.py WHEEL MODULE > tests/contract/surfaces/...json
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

_LOOK_UP = "GetFunctionPointer"


def calls_in(source: str) -> dict[str, int]:
    """Return each C function that a module's text calls, with its number of arguments."""
    found: dict[str, int] = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            found.update(_calls(function))
    return found


def _calls(function: ast.FunctionDef) -> dict[str, int]:
    """Follow `fn = _xGetFunctionPointer("name")` to `fn(...)` in one function, in their order."""
    found: dict[str, int] = {}
    names: dict[str, str] = {}
    nodes = [n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.Call)]
    for node in sorted(nodes, key=lambda n: (n.lineno, isinstance(n, ast.Assign))):
        if isinstance(node, ast.Assign):
            name = _looked_up(node.value)
            if name and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = name
        elif isinstance(node.func, ast.Name) and node.func.id in names:
            found[names[node.func.id]] = len(node.args)
    return found


def _looked_up(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_LOOK_UP):
        (argument,) = node.args
        return argument.value if isinstance(argument, ast.Constant) else None
    return None


def record(wheel: Path, module: str) -> dict[str, Any]:
    """Return what the file `module`.py in the wheel calls, with the wheel's name and digest."""
    with zipfile.ZipFile(wheel) as archive:
        calls = calls_in(archive.read(f"{module}.py").decode())
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"file": wheel.name, "sha256": digest, "calls": dict(sorted(calls.items()))}


if __name__ == "__main__":
    print(json.dumps(record(Path(sys.argv[1]), sys.argv[2]), indent=1))
