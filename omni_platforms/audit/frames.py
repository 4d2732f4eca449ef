"""Which line of the user's asked for something, and what that line says.

A site is one instruction of one code object: two reads on a line are two sites.
The user's frame is the innermost one outside torch, NumPy, the standard library
and this package.
"""

from __future__ import annotations

import builtins
import dis
import linecache
import os
import sysconfig
from itertools import islice
from types import FrameType
from typing import NamedTuple

import torch

_PATHS = sysconfig.get_paths()
_STANDARD = _PATHS["stdlib"] + os.sep
_SITE_PACKAGES = (_PATHS["purelib"] + os.sep, _PATHS["platlib"] + os.sep)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROGRAMS_OF_OURS = tuple(_PACKAGE + part + os.sep for part in ("demo", "bench"))
_RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_NUMPY = tuple(f"{folder}numpy{os.sep}" for folder in _SITE_PACKAGES)
_GENERATED = ("torchinductor_", "<eval_with_key>", "<frozen", "<torch_package")

_of_user: dict[str, bool] = {}


def user_frame(frame: FrameType) -> FrameType:
    """Return the innermost frame of the user's at or above `frame`; `frame` where there is none."""
    found: FrameType | None = frame
    while found is not None:
        filename = found.f_code.co_filename
        mine = _of_user.get(filename)
        if mine is None:
            mine = _of_user[filename] = _is_users(filename)
        # A library may put a function of its own in the place of `print` (Ray does).
        if mine and found.f_code is not getattr(builtins.print, "__code__", None):
            return found
        found = found.f_back
    return frame


def _is_users(filename: str) -> bool:
    if any(word in filename for word in _GENERATED):
        return False
    if filename.startswith("<"):  # typed in, or made by exec
        return True
    path = os.path.abspath(filename)
    if path.startswith(_STANDARD) and not path.startswith(_SITE_PACKAGES):
        return False
    if path.startswith(_PACKAGE) and not path.startswith(_PROGRAMS_OF_OURS):
        return False
    return not path.startswith((_TORCH, *_NUMPY))


Position = tuple["int | None", "int | None", "int | None", "int | None"]
"""First and last line, first and last column of an expression, columns in bytes from 0."""


def position(frame: FrameType) -> Position:
    """Return where the expression is that `frame` evaluates.

    Before Python 3.11 nobody knows: it is the line and the instruction.
    """
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None or frame.f_lasti < 0:
        return frame.f_lineno, None, frame.f_lasti, None
    found = next(islice(positions(), frame.f_lasti // 2, None), (None, None, None, None))
    return found[0] or frame.f_lineno, *found[1:]


class Place(NamedTuple):
    """One instruction, as people read it. `column` counts characters from 1; 0 is unknown."""

    file: str
    line: int
    column: int
    function: str
    source: str
    callers: tuple[str, ...]
    path: str


def place_of(frame: FrameType) -> Place:
    """Describe where `frame` is now."""
    code, (start, end, first, _) = frame.f_code, position(frame)
    line = start or frame.f_lineno
    column = 0 if end is None or first is None else first + 1
    path = (
        code.co_filename if code.co_filename.startswith("<") else os.path.abspath(code.co_filename)
    )
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return Place(shown(code.co_filename), line, column, code.co_name, text, _callers(frame), path)


def segment(frame: FrameType) -> str:
    """Return the source of the expression that `frame` evaluates, or of its line."""
    start, end, first, last = position(frame)
    name = frame.f_code.co_filename
    if start is None or end is None or first is None or last is None:
        return linecache.getline(name, frame.f_lineno, frame.f_globals)
    lines = [linecache.getline(name, at, frame.f_globals) for at in range(start, end + 1)]
    data = [line.encode() for line in lines]  # positions count bytes of UTF-8
    data[-1] = data[-1][:last]
    data[0] = data[0][first:]
    return b"".join(data).decode(errors="replace")


def is_subscript(frame: FrameType) -> bool:
    """Whether `frame` is reading or writing `something[index]`."""
    code = frame.f_code.co_code
    name = dis.opname[code[frame.f_lasti]]
    if name == "BINARY_OP":  # Python 3.14 has no instruction of its own for it
        return "NB_SUBSCR" in dis._nb_ops[code[frame.f_lasti + 1]]  # type: ignore[attr-defined]
    return name in {"BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"}


def _callers(frame: FrameType, limit: int = 6) -> tuple[str, ...]:
    """Return the user's frames that led here, the nearest first, without the site itself."""
    found: list[str] = []
    above = frame.f_back
    while above is not None and len(found) < limit and above.f_code.co_filename != _RUNNER:
        if _of_user.setdefault(above.f_code.co_filename, _is_users(above.f_code.co_filename)):
            found.append(f"{shown(above.f_code.co_filename)}:{above.f_lineno}")
        above = above.f_back
    return tuple(found)


def shown(filename: str) -> str:
    """Return a file's name below the working directory, or below site-packages, or whole."""
    if filename.startswith("<"):
        return filename
    path = os.path.abspath(filename)
    for folder in (os.getcwd() + os.sep, *_SITE_PACKAGES):
        if path.startswith(folder):
            return path[len(folder) :]
    return path
