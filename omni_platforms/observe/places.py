"""Where processes that may be seen have their sockets: a folder of one user.

Each process has one, `<pid>-<number>.sock`. It is there only while somebody listens: it is made
under another name and renamed when it answers, so a socket that refuses is a dead process's.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from omni_platforms import settings
from omni_platforms.errors import ObserveError

SUFFIX = ".sock"
_LONGEST = 100  # bytes: what the address of a Unix socket holds, on every system


def folder() -> Path:
    """Return the folder's name. Raises `SettingError`."""
    chosen = settings.read("OMNI_EXPOSE_FOLDER")
    if chosen is not None:
        return Path(chosen).absolute()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime, "omni-platforms")
    return Path(tempfile.gettempdir(), f"omni-platforms-{os.geteuid()}")


def made_folder() -> Path:
    """Return the folder, made if need be, which nobody else can enter.

    Raises `ObserveError` for one that others own or may enter, and where none can be made.
    """
    path = folder()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(path)
    except OSError as error:
        raise ObserveError(
            f"{path} cannot be the folder of sockets ({error.strerror}): set OMNI_EXPOSE_FOLDER"
        ) from error
    if len(os.fsencode(path)) + 32 > _LONGEST:
        raise ObserveError(f"{path} is too long a name for sockets: set OMNI_EXPOSE_FOLDER")
    return path


def check_private(path: Path) -> None:
    """Raise `ObserveError` unless a folder is this user's, and nobody else's to enter."""
    state = os.lstat(path)
    if not stat.S_ISDIR(state.st_mode):
        raise ObserveError(f"{path} is no folder: remove it, or set OMNI_EXPOSE_FOLDER")
    if state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise ObserveError(
            f"{path} is not private (owner {state.st_uid}, mode {stat.S_IMODE(state.st_mode):o}): "
            "make it mode 700, or set OMNI_EXPOSE_FOLDER"
        )


def process_of(path: Path) -> int:
    """Return the process that a socket's name speaks of; 0 for another name."""
    number = path.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0
