"""Says of a use whether the real package has the name and takes the arguments."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.contract.uses import Plugin, Use
from tests.contract.written import NATIVE, PLAIN, TORCHS_OWN_USES
from tools.vendor_surface import (
    Arguments,
    Member,
    Sources,
    folder_reader,
    member_from_json,
)

SURFACES = Path(__file__).parent / "surfaces"
_OWN_FILES = ("cuda/__init__.py", "cuda/_pin_memory_utils.py", "cuda/memory.py", "numa/binding.py")


def torch_folder() -> Path:
    """The folder of the installed torch, whose files are parsed."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def surface(name: str) -> Member:
    """A recorded or written surface by the name of its file."""
    document = json.loads((SURFACES / f"{name}.json").read_text())
    return module_of(document)


def module_of(document: Mapping[str, Any]) -> Member:
    """The module that a recorded document describes, in its package."""
    inside = member_from_json({"members": document["members"]})
    for part in reversed(document["module"].split(".")[1:]):
        inside = Member(members={part: inside})
    return inside


@functools.cache
def torch_modules() -> dict[str, Member]:
    """Torch's modules for CUDA and XPU from their files, and torch._C from its type stub."""
    names = ("torch.cuda", "torch.cuda.nvtx", "torch.xpu", "torch._C")
    sources = Sources(folder_reader(torch_folder().parent), names)
    return {name: Member(members=sources.module(name)) for name in names}


@functools.cache
def _torchs_own() -> dict[str, dict[str, Member]]:
    """What torch's own Python files do with native objects: names, and numbers of arguments."""
    # Named apart from torch, so that a call of `torch.cuda.cudart` is a call into torch.
    modules = {f"own.{n}": ast.parse((torch_folder() / n).read_text()) for n in _OWN_FILES}
    found: dict[str, dict[str, Member]] = {path: {} for path in TORCHS_OWN_USES}
    for use in Plugin(modules, ["torch"]).uses:
        base, _, name = use.path.rpartition(".")
        for path, bases in TORCHS_OWN_USES.items():
            if base in bases and use.call is None:
                found[path].setdefault(name, Member())
            elif base in bases and use.call is not None:
                names = tuple(f"argument {n}" for n in range(use.call[0]))
                found[path][name] = Member(Arguments(names, len(names)))
    return found


class Judge:
    """Knows the real packages: torch is the installed one, the others are surfaces."""

    def __init__(self, packages: Mapping[str, Member]) -> None:
        self.known = {**torch_modules(), **packages}

    def complaint(self, use: Use) -> str | None:
        """Say what is wrong with one use, or nothing."""
        try:
            found = self.find(use.path)
        except LookupError as error:
            return f"{use}: {error.args[0]}"
        if use.call is None:
            return None
        arguments = found.arguments if isinstance(found, Member) else live_arguments(found)
        if isinstance(found, Member) and arguments is None:
            return f"{use}: nothing says that it can be called"
        count, keywords, starred = use.call
        wrong = None if arguments is None else arguments.complaint(count, keywords, starred)
        return wrong and f"{use}: {wrong}"

    def find(self, path: str) -> Any:
        """Return the member (or the object of the installed torch) at `path`."""
        start = max((k for k in self.known if path == k or path.startswith(f"{k}.")), default=None)
        if start is None:
            here: Any = torch
            start = "torch"
        else:
            here = self.known[start]
        for step in re.findall(r"\.(\w+)|(\(\))", path[len(start) :]):
            before, is_call = start, bool(step[1])
            start += "()" if is_call else f".{step[0]}"
            if start in PLAIN:
                self.find(before)
                here = PLAIN[start]
            else:
                here = self._result(start, here) if is_call else self._inside(start, here, step[0])
        return here

    def _inside(self, path: str, here: Any, name: str) -> Any:
        if isinstance(here, Member):
            if name in (here.members or {}):
                return (here.members or {})[name]
        elif hasattr(here, name):
            return getattr(here, name)
        raise LookupError(f"there is no {path}")

    def _result(self, path: str, function: Any) -> Any:
        """Return what a call makes: by the tables, by a class, or by the annotation."""
        if path in NATIVE:
            return Member(members=NATIVE[path])
        made = None
        if isinstance(function, Member):
            made = function if function.members is not None else self._annotated(function.returns)
        own = _torchs_own().get(path)
        if own is not None:
            stub = made.members if isinstance(made, Member) else None
            return Member(members={**(stub or {}), **own})
        if made is None:
            raise LookupError(f"nobody says what {path} returns: write it into written.py")
        return made

    def _annotated(self, annotation: str) -> Any:
        name = annotation.strip("'\"").partition("[")[0].rpartition(".")[2]
        found = (self.known["torch._C"].members or {}).get(name)
        if found is not None and found.members is not None:
            return found
        kind = getattr(builtins, name.lower(), None)  # `Dict` of typing is `dict`
        return kind() if isinstance(kind, type) else None


def live_arguments(found: Any) -> Arguments | None:
    """What an object of the installed torch takes, if Python can tell."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None  # a class or function of C++
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return Arguments(
        tuple(p.name for p in plain),
        sum(p.default is p.empty for p in plain),
        tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )
