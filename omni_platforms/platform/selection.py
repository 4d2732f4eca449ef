"""Which platform this process uses: chosen once, on first use.

`choose` is the rule, a pure function of the reports. `current_platform` applies
it and remembers the result; the automatic choice goes to the environment
variable `OMNI_PLATFORM`, so that child processes agree without asking again.

A BROKEN plugin is warned about once a process through `logging` (this module's
logger). The package installs no handler: where logging is not configured,
Python prints such warnings on standard error.
"""

from __future__ import annotations

import difflib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omni_platforms import settings
from omni_platforms.errors import (
    AmbiguousPlatformError,
    BrokenPluginError,
    PlatformError,
    PlatformUnavailableError,
    UnknownPlatformError,
)
from omni_platforms.events import log_event
from omni_platforms.platform.builtin import CPU
from omni_platforms.platform.discovery import (
    PluginReport,
    describe_error,
    discover,
    known_names,
)
from omni_platforms.platform.probe import ProbeStatus

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

logger = logging.getLogger(__name__)

VARIABLE = "OMNI_PLATFORM"
_SIMULATE = "OMNI_SIMULATE"  # chooses the platform that it simulates


# The rule ---------------------------------------------------------------------


def choose(
    reports: Sequence[PluginReport],
    *,
    requested: str | None = None,
    strict: bool = False,
    names: Iterable[str] | None = None,
    variable: str = VARIABLE,
) -> PluginReport:
    """Decide which of `reports` is the platform; creates and changes nothing.

    `requested`, which the environment variable `variable` named, decides alone.
    Otherwise exactly one AVAILABLE accelerator wins, and without any the CPU. `names`
    are the known names for the message about an unknown one, by default those of the
    reports. Raises `UnknownPlatformError`, `PlatformUnavailableError`,
    `BrokenPluginError` (also for any BROKEN plugin when `strict`) or
    `AmbiguousPlatformError`.
    """
    if requested is not None:
        known = {report.name for report in reports} if names is None else names
        return _requested(reports, requested, sorted(known), variable)
    broken = [report for report in reports if report.status is ProbeStatus.BROKEN]
    if strict and broken:
        complaints = "; ".join(describe_broken(report) for report in broken)
        raise BrokenPluginError(f"OMNI_PLATFORM_STRICT is set, and {complaints}")
    return _automatic([r for r in reports if r.status is ProbeStatus.AVAILABLE])


def _requested(
    reports: Sequence[PluginReport], name: str, known: list[str], variable: str
) -> PluginReport:
    named = [report for report in reports if report.name == name]
    if not named:
        raise UnknownPlatformError(_unknown_message(name, known, variable))
    # Whoever claims the name of the built-in platform stands before it and is BROKEN.
    report = named[-1]
    if report.status is ProbeStatus.AVAILABLE:
        return report
    if report.status is ProbeStatus.BROKEN:
        raise BrokenPluginError(f"{variable}={name}: {describe_broken(report)}") from report.error
    raise PlatformUnavailableError(
        f"{variable}={name}: the platform of {report.source} is not available: {report.reason}. "
        f"Make its device available, or unset {variable} to choose automatically."
    )


def _unknown_message(name: str, known: list[str], variable: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"{variable}={name}: no plugin has that name. Known names: {', '.join(known)}.{hint} "
        f"Install the plugin that offers {name!r}, or unset {variable} to choose automatically."
    )


def _automatic(available: list[PluginReport]) -> PluginReport:
    accelerators = [report for report in available if report.name != CPU]
    if len(accelerators) > 1:
        listing = ", ".join(f"{report.name} ({report.source})" for report in accelerators)
        raise AmbiguousPlatformError(
            f"Several accelerators are available: {listing}. Set {VARIABLE} to the one to use, "
            "or name the others in OMNI_PLATFORMS_DISABLE."
        )
    chosen = accelerators or available
    if not chosen:
        raise PlatformUnavailableError(
            "No accelerator is available, and the CPU platform is disabled by "
            "OMNI_PLATFORMS_DISABLE. See `omni-platforms list` for the reasons, or take cpu "
            "out of that variable."
        )
    return chosen[0]


def describe_broken(report: PluginReport) -> str:
    """Return one sentence on a BROKEN plugin: its name, who ships it, the cause, the remedy."""
    return (
        f"plugin {report.name!r} ({report.source}) is BROKEN: {report.reason.rstrip('.')}. "
        f"Repair or uninstall it, or set OMNI_PLATFORMS_DISABLE={report.name}"
    )


# Making it --------------------------------------------------------------------


def create_platform(report: PluginReport) -> OmniPlatform:
    """Make the platform of an AVAILABLE report; may import torch and a vendor's SDK.

    Raises `BrokenPluginError`, with its cause, when the plugin raises, exits,
    makes nothing or makes something else.
    """
    if report.hooks is None:
        raise BrokenPluginError(f"{describe_broken(report)}: it was not loaded")
    try:
        platform = report.hooks.hook.omni_platforms_create(name=report.name)
    except (Exception, SystemExit) as error:
        # KeyboardInterrupt passes: on this thread it may be the user's.
        raise _creation_error(report, f"raised {describe_error(error)}") from error
    complaint = _complaint(platform, report.name)
    if complaint is not None:
        raise _creation_error(report, complaint)
    made: OmniPlatform = platform
    return made


def _complaint(platform: object, name: str) -> str | None:
    from omni_platforms.platform.interface import OmniPlatform

    if not isinstance(platform, OmniPlatform):
        return f"returned {platform!r:.80}, not an OmniPlatform"
    if platform.name != name:
        return f"returned a platform called {platform.name!r}"
    return None


def _creation_error(report: PluginReport, what: str) -> BrokenPluginError:
    return BrokenPluginError(
        f"omni_platforms_create({report.name!r}) of {report.source} {what}. Repair or uninstall "
        f"it, or set OMNI_PLATFORMS_DISABLE={report.name} to go without."
    )


# The choice of this process ---------------------------------------------------


@dataclass
class _Choice:
    """What was chosen, and what that changed in the environment."""

    platform: OmniPlatform | None = None
    choosing: bool = False
    exported: str | None = None
    overwrote: str | None = None
    warned: set[str] = field(default_factory=set)


_choice = _Choice()
_lock = threading.RLock()


def _after_fork_in_child() -> None:
    """Take a new lock: another thread of the parent may have held the old one."""
    global _lock
    _lock = threading.RLock()
    _choice.choosing = False


os.register_at_fork(after_in_child=_after_fork_in_child)


def current_platform() -> OmniPlatform:
    """Return the platform of this process, chosen on the first call.

    Any thread may call it; threads that come at once get the same object. The
    first call may block while plugins are probed (`OMNI_PROBE_TIMEOUT` seconds
    each at most) and while the chosen one imports torch. Raises the errors of
    `choose` and `create_platform`, and `SettingError` for a bad variable; a
    failed choice is not remembered. Do not keep the result in a module at
    import time: tests and embedding programs may change it.
    """
    platform = _choice.platform
    if platform is not None:
        return platform
    with _lock:
        if _choice.platform is None:
            _choice.platform = _choose_and_create()
        return _choice.platform


def _choose_and_create() -> OmniPlatform:
    if _choice.choosing:
        raise PlatformError(
            "current_platform() was called by the plugin that is being created for it; "
            "omni_platforms_create must not ask for the current platform."
        )
    _choice.choosing = True
    try:
        variable = VARIABLE if settings.read(VARIABLE) is not None else _SIMULATE
        requested = settings.read(variable)
        report = _choose(requested, variable)
        platform = create_platform(report)
        chosen_by = "automatic" if requested is None else variable
        log_event(logger, "platform_selected", platform=report.name, by=chosen_by)
        if requested is None:
            _export(report.name)
        return platform
    finally:
        _choice.choosing = False


def _choose(requested: str | None, variable: str) -> PluginReport:
    if requested is not None:
        return choose(
            discover(only=requested), requested=requested, names=known_names(), variable=variable
        )
    reports = discover()
    _warn_about_broken(reports)
    return choose(reports, strict=settings.read("OMNI_PLATFORM_STRICT"))


def _warn_about_broken(reports: Sequence[PluginReport]) -> None:
    for report in reports:
        if report.status is ProbeStatus.BROKEN and report.name not in _choice.warned:
            _choice.warned.add(report.name)
            logger.warning("The %s.", describe_broken(report))


def set_current_platform(platform: OmniPlatform) -> None:
    """Make `platform` the one of this process, for tests and embedding.

    Any thread may call it; who already holds the old platform keeps it. An
    automatic choice's `OMNI_PLATFORM` is taken back, and none is exported.
    Raises `TypeError` for anything but an `OmniPlatform`.
    """
    from omni_platforms.platform.interface import OmniPlatform

    if not isinstance(platform, OmniPlatform):
        raise TypeError(
            f"set_current_platform() needs an OmniPlatform, not {platform!r}; "
            "use reset_platform() to choose anew"
        )
    with _lock:
        _take_back_export()
        _choice.platform = platform


def reset_platform() -> None:
    """Forget the platform, so that the next `current_platform()` chooses anew.

    Undoes what an automatic choice did to `OMNI_PLATFORM`, unless somebody has
    changed the variable since. Any thread may call it.
    """
    with _lock:
        _take_back_export()
        _choice.platform = None


def _export(name: str) -> None:
    _choice.overwrote = os.environ.get(VARIABLE)
    _choice.exported = os.environ[VARIABLE] = name


def _take_back_export() -> None:
    if _choice.exported is not None and os.environ.get(VARIABLE) == _choice.exported:
        if _choice.overwrote is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = _choice.overwrote
    _choice.exported = _choice.overwrote = None
