"""Every environment variable that omni-platforms reads, in one table.

`SETTINGS` is the table; `read(name)` parses one variable and raises
`SettingError` with the variable's name when the value makes no sense. Values
are read when asked for, never cached, so a test or an embedding program may
change them before first use.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from omni_platforms.errors import SettingError


@dataclass(frozen=True)
class Setting:
    """One environment variable: its name, type, default and meaning.

    `parse` turns the text into the value and raises `ValueError` for a bad one;
    `default` is the value when the variable is not set.
    """

    name: str
    kind: str
    default: Any
    meaning: str
    parse: Callable[[str], Any]


def _platform_name(text: str) -> str:
    name = text.strip().lower()
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError("expected one platform's name, such as cuda or cpu")
    return name


def _names(text: str) -> tuple[str, ...]:
    return tuple(_platform_name(part) for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError("expected 1 or 0")


def _device_name(text: str) -> str:
    name = text.strip().lower()
    if not name.isidentifier():
        raise ValueError("expected one device's name, such as npu or sim")
    return name


def _folder(text: str) -> str:
    if not text.strip():
        raise ValueError("expected the name of a folder")
    return text


def _log_format(text: str) -> str:
    name = text.strip().lower()
    if name not in {"text", "json"}:
        raise ValueError("expected text or json")
    return name


def _positive_whole(text: str) -> int:
    value = int(text) if text.strip().isdecimal() else 0
    if value < 1:
        raise ValueError("expected a positive whole number")
    return value


def _positive_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError("expected a positive number of seconds")
    return value


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "OMNI_PLATFORM",
            "name",
            None,
            "The platform to use. It decides alone: an unknown or unavailable name is an error, "
            "never a fallback. Set by the first automatic choice, so that child processes agree.",
            _platform_name,
        ),
        Setting(
            "OMNI_PLATFORMS_DISABLE",
            "names, comma-separated",
            (),
            "Plugins that are neither imported nor probed.",
            _names,
        ),
        Setting(
            "OMNI_PLATFORM_STRICT",
            "1 or 0",
            False,
            "Make a BROKEN plugin an error instead of a warning.",
            _flag,
        ),
        Setting(
            "OMNI_PROBE_TIMEOUT",
            "seconds",
            5.0,
            "How long one plugin may take to be imported and to answer its probe "
            "before it counts as BROKEN.",
            _positive_seconds,
        ),
        Setting(
            "OMNI_SIMULATE",
            "name",
            None,
            "The device to simulate in this process and its children: npu, musa, xpu or sim. "
            "Its platform is chosen where OMNI_PLATFORM does not say otherwise.",
            _device_name,
        ),
        Setting(
            "OMNI_SIMULATE_DEVICES",
            "count",
            2,
            "How many devices OMNI_SIMULATE gives a process.",
            _positive_whole,
        ),
        Setting(
            "OMNI_SIMULATE_MEMORY",
            "bytes",
            1 << 30,
            "The memory of each device that OMNI_SIMULATE gives a process.",
            _positive_whole,
        ),
        Setting(
            "OMNI_SIMULATE_SCHEDULE",
            "name of a schedule",
            "eager",
            "When the work of a device that OMNI_SIMULATE gives a process runs: eager, lazy, "
            "lazy:<device>.<stream>,... or random:<seed>.",
            str.strip,
        ),
        Setting(
            "OMNI_ASYNC_OUTPUT_TIMEOUT",
            "seconds",
            600.0,
            "How long to wait for one output of a worker process. The wait begins behind the "
            "forward, so it must be longer than the longest request.",
            _positive_seconds,
        ),
        Setting(
            "OMNI_WORKER_START_TIMEOUT",
            "seconds",
            600.0,
            "How long a worker process may take to load its model and report. One that dies is "
            "noticed at once.",
            _positive_seconds,
        ),
        Setting(
            "OMNI_TRACE",
            "folder",
            None,
            "A folder in which every process that has an executor records what it does, for "
            "`omni-platforms trace --merge`; `omni-platforms trace -- COMMAND` sets it itself.",
            _folder,
        ),
        Setting(
            "OMNI_TRACE_EVENTS",
            "count",
            65_536,
            "How many events a process records, of 256 bytes each; older ones are overwritten.",
            _positive_whole,
        ),
        Setting(
            "OMNI_EXPOSE",
            "1 or 0",
            False,
            "Let `omni-platforms top` and `trace --attach` of the same user see the executors of "
            "this process and of its workers.",
            _flag,
        ),
        Setting(
            "OMNI_EXPOSE_FOLDER",
            "folder",
            None,
            "Where processes that may be seen have their sockets. When unset, "
            "$XDG_RUNTIME_DIR/omni-platforms or, without that, omni-platforms-<uid> in the folder "
            "for temporary files.",
            _folder,
        ),
        Setting(
            "OMNI_OTEL",
            "1 or 0",
            False,
            "Make an OpenTelemetry span of each request and output. Needs the extra `tracing`, and "
            "does nothing unless the program sets up the SDK.",
            _flag,
        ),
        Setting(
            "OMNI_PROFILER_RANGES",
            "1 or 0",
            False,
            "Put the platform's profiler ranges around submits, forwards, copies and on_host "
            "functions. One takes some microseconds.",
            _flag,
        ),
        Setting(
            "OMNI_LOG",
            "name of a format",
            None,
            "Write the package's log, from INFO, to standard error: as text, or as json, one "
            "object a line.",
            _log_format,
        ),
        Setting(
            "OMNI_NPU_HCCL_HOST_SYNC",
            "1 or 0",
            False,
            "On Ascend NPUs, make the host wait for the device before each event. For stacks on "
            "which an event does not cover collectives; it costs the overlap.",
            _flag,
        ),
    )
}


def read(name: str, environ: Mapping[str, str] | None = None) -> Any:
    """Return the value of the setting `name`, parsed, or its default when unset or blank.

    Does not block. Raises `KeyError` for a name that is not in `SETTINGS` and
    `SettingError` for a value that the setting refuses.
    """
    setting = SETTINGS[name]
    text = (os.environ if environ is None else environ).get(name)
    if text is None or (not text.strip() and setting.kind.startswith("name")):
        return setting.default
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingError(
            f"{name}={text!r} is not valid: {error}. Unset {name} to use the default "
            f"({setting.default!r}), or see `omni-platforms env`."
        ) from error
