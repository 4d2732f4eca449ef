"""Finds the line of the user's code that asked for something."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType, TracebackType

import torch

_PATHS = sysconfig.get_paths()
_STANDARD = _PATHS["stdlib"] + os.sep
_SITE_PACKAGES = (_PATHS["purelib"] + os.sep, _PATHS["platlib"] + os.sep)
_OURS = tuple(os.path.dirname(os.path.abspath(f)) + os.sep for f in (__file__, torch.__file__))
_names: dict[
    str, str
] = {}  # by a code object's file: how to show it, "" for what is not the user's


def call_site() -> str:
    """Return `file:line in function` of the innermost frame outside torch and the simulator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = _shown(frame.f_code.co_filename)
        if name:
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def raised_at(error: BaseException) -> str:
    """Return `file:line in function` of the innermost frame of the user's in a traceback."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        found = _of_traceback(traceback) or found
        traceback = traceback.tb_next
    return found


def _of_traceback(traceback: TracebackType) -> str:
    code = traceback.tb_frame.f_code
    name = _shown(code.co_filename)
    return f"{name}:{traceback.tb_lineno} in {code.co_name}" if name else ""


def _shown(filename: str) -> str:
    name = _names.get(filename)
    if name is None:
        name = _names[filename] = _shorten(filename)
    return name


def _shorten(filename: str) -> str:
    path = os.path.abspath(filename)
    if filename.startswith("<") and filename.endswith(">"):  # not a file, or frozen
        return "" if filename.startswith("<frozen") else filename
    standard = path.startswith(_STANDARD) and not path.startswith(_SITE_PACKAGES)
    if standard or path.startswith(_OURS):
        return ""
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith("..") else relative
