"""Finding and making the user's worker object from its name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import torch

from omni_platforms.engine.messages import Setup
from omni_platforms.errors import WorkerStartError


def load_class(name: str) -> Any:
    """Return the class that "package.module:Class" or "path/to/file.py:Class" names.

    A file becomes the module of its own name, so that what it defines can be
    pickled. Raises `WorkerStartError`, and whatever importing raises.
    """
    module_name, _, class_name = name.rpartition(":")
    if not module_name or not class_name:
        raise WorkerStartError(
            f"{name!r} does not name a worker class: write package.module:Class, or "
            "path/to/file.py:Class"
        )
    module = _module(module_name)
    found = module
    for part in class_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise WorkerStartError(
            f"{module_name} has no class {class_name!r}; it has "
            f"{', '.join(sorted(_classes(module))) or 'none'}"
        )
    return found


def make_worker(setup: Setup, device: torch.device) -> Any:
    """Make the worker object. `world_size` is passed where its `__init__` takes it.

    Raises `WorkerStartError` and what the class raises.
    """
    kind = load_class(setup.worker)
    if not callable(getattr(kind, "execute_model", None)):
        raise WorkerStartError(f"{setup.worker} has no method execute_model(request)")
    config = setup.config.load()
    more = {"world_size": setup.world_size} if _takes(kind, "world_size") else {}
    return kind(rank=setup.rank, device=device, config=config, **more)


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise WorkerStartError(f"there is no file {path} to take a worker class from")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _classes(module: Any) -> list[str]:
    name = module.__name__
    return [
        key
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == name
    ]


def _takes(kind: Any, parameter: str) -> bool:
    try:
        return parameter in inspect.signature(kind).parameters
    except (TypeError, ValueError):  # a class without a signature that Python can see
        return False
