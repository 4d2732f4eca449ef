"""Find every plugin and ask each one, by itself, whether its device is there.

Plugins are imported and probed one after the other, each on a helper thread
with a deadline and in a pluggy `PluginManager` of its own: one that raises,
hangs, prints, exits or wraps hooks harms no other. Nothing here imports torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pluggy import PluginManager

from omni_platforms import __version__, settings
from omni_platforms.errors import BrokenPluginError
from omni_platforms.platform import builtin, hookspecs
from omni_platforms.platform.builtin import CPU, SIMULATED
from omni_platforms.platform.deadline import Outcome, run_with_deadline
from omni_platforms.platform.plugin_entries import PluginEntry, find_entries
from omni_platforms.platform.probe import Probe, ProbeStatus

logger = logging.getLogger(__name__)

_HOOKS = ("omni_platforms_probe", "omni_platforms_create")
_LONGEST_QUOTE = 500


@dataclass(frozen=True)
class PluginReport:
    """How one plugin stands: what `omni-platforms list` shows of it.

    `hooks` makes the platform (`None` unless the plugin was loaded and
    answered), and `error` is the exception behind a BROKEN status, if any.
    """

    name: str
    status: ProbeStatus
    reason: str
    distribution: str
    version: str
    device_count: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    hooks: PluginManager | None = field(default=None, repr=False, compare=False)
    error: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def source(self) -> str:
        """The distribution with its version, as messages name it."""
        return f"{self.distribution} {self.version}"

    def row(self) -> dict[str, object]:
        """Return the public fields as plain values, for JSON."""
        return {
            "name": self.name,
            "status": self.status.value,
            "reason": self.reason,
            "device_count": self.device_count,
            "distribution": self.distribution,
            "version": self.version,
            "versions": dict(self.versions),
        }


def discover(only: str | None = None) -> tuple[PluginReport, ...]:
    """Report on every installed plugin, by name, with the built-in CPU platform last.

    With `only`, no other plugin than the one of that name is imported or
    reported. Plugins in `OMNI_PLATFORMS_DISABLE` are neither imported nor
    probed. Blocks for at most `OMNI_PROBE_TIMEOUT` seconds a plugin. Any thread
    may call it. Raises `SettingError` for a bad variable and nothing else: what
    a plugin does wrong is in its report.
    """
    timeout = settings.read("OMNI_PROBE_TIMEOUT")
    disabled = settings.read("OMNI_PLATFORMS_DISABLE")
    reports = [
        _report(name, entries, disabled, timeout)
        for name, entries in _all_entries().items()
        if only in (None, name)
    ]
    if only in (None, CPU):
        reports.append(_builtin_report(disabled, timeout))
    return tuple(reports)


def known_names() -> list[str]:
    """Return the names of every installed plugin and the built-in one; imports none of them."""
    return sorted({*_all_entries(), CPU})


def _all_entries() -> dict[str, list[PluginEntry]]:
    """Return the installed plugins, and the simulated one where `OMNI_SIMULATE` asks for it."""
    found = find_entries()
    if settings.read("OMNI_SIMULATE") == SIMULATED.name:
        found.setdefault(SIMULATED.name, []).append(SIMULATED)
    return found


def _report(
    name: str, entries: list[PluginEntry], disabled: tuple[str, ...], timeout: float
) -> PluginReport:
    blank = PluginReport(
        name,
        ProbeStatus.BROKEN,
        "",
        ", ".join(entry.distribution for entry in entries),
        ", ".join(entry.version for entry in entries),
    )
    if name in disabled:
        return _as_disabled(blank)
    complaint = _entry_complaint(name, entries)
    if complaint:
        return replace(blank, reason=complaint)
    return _probe(entries[0], blank, timeout)


def _builtin_report(disabled: tuple[str, ...], timeout: float) -> PluginReport:
    blank = PluginReport(CPU, ProbeStatus.ABSENT, "", "omni-platforms", __version__)
    if CPU in disabled:
        return _as_disabled(blank)
    hooks = _manager()
    hooks.register(builtin, name=CPU)
    probe = builtin.omni_platforms_probe()
    return _answered(blank, probe, hooks)


def _as_disabled(report: PluginReport) -> PluginReport:
    return replace(
        report, status=ProbeStatus.ABSENT, reason="disabled by OMNI_PLATFORMS_DISABLE; not loaded"
    )


def _entry_complaint(name: str, entries: list[PluginEntry]) -> str | None:
    """Say what is wrong with a name's entries before anything is imported, or `None`."""
    sources = " and ".join(f"{entry.source} ({entry.value})" for entry in entries)
    if name == CPU:
        return f"{CPU!r} is built in, and {sources} claims it too; its author must rename the entry"
    if len(entries) > 1:
        return (
            f"{sources} both offer {name!r}; uninstall all but one of them, "
            f"or set OMNI_PLATFORMS_DISABLE={name}"
        )
    if not _selectable(name):
        return (
            f"{name!r} of {sources} cannot be selected by OMNI_PLATFORM; its author must rename "
            "the entry to lower-case letters, digits, - and _"
        )
    return None


def _selectable(name: str) -> bool:
    try:
        return bool(settings.SETTINGS["OMNI_PLATFORM"].parse(name) == name)
    except ValueError:
        return False


class _Attempt:
    """Loads and probes one plugin, and remembers how far it came."""

    def __init__(self, entry: PluginEntry) -> None:
        self.entry = entry
        self.stage = f"importing {entry.value}"
        self._simulated = settings.read("OMNI_SIMULATE") == entry.name

    def __call__(self) -> tuple[PluginManager, Probe]:
        plugin = self.entry.load()
        self.stage = f"reading the hooks of {self.entry.value}"
        hooks = _manager()
        hooks.register(plugin, name=self.entry.name)
        if self._simulated and self.entry is not SIMULATED:
            # Registered later, it is asked first: the vendor's own probe sees no device.
            hooks.register(SIMULATED.load(), name=SIMULATED.name)
        missing = [hook for hook in _HOOKS if not getattr(hooks.hook, hook).get_hookimpls()]
        if missing:
            raise BrokenPluginError(f"{self.entry.value} implements no {' and no '.join(missing)}")
        self.stage = "its probe"
        return hooks, _checked(hooks.hook.omni_platforms_probe(), self.entry.name)


def _checked(answers: list[object], name: str) -> Probe:
    """Return the one answer of a probe as a `Probe` of plain values."""
    answer = answers[0] if answers else None
    if not isinstance(answer, Probe):
        raise BrokenPluginError(f"its probe returned {answer!r:.80}, not a Probe")
    if answer.name != name:
        raise BrokenPluginError(
            f"its probe answered for {answer.name!r}, but its entry point is called {name!r}"
        )
    versions = {str(part): str(version) for part, version in answer.versions.items()}
    return replace(answer, reason=_one_line(answer.reason), versions=versions)


def _probe(entry: PluginEntry, blank: PluginReport, timeout: float) -> PluginReport:
    attempt = _Attempt(entry)
    outcome = run_with_deadline(attempt, timeout, f"omni-platforms-probe-{entry.name}")
    if outcome.printed:
        logger.warning(
            "Plugin %r (%s) printed while it was loaded and probed, which a plugin must not: %s",
            entry.name,
            entry.source,
            _one_line(outcome.printed),
        )
    if outcome.value is None:
        return _failed(blank, outcome, attempt.stage, timeout)
    hooks, probe = outcome.value
    return _answered(blank, probe, hooks)


def _answered(blank: PluginReport, probe: Probe, hooks: PluginManager) -> PluginReport:
    return replace(
        blank,
        status=probe.status,
        reason=probe.reason,
        device_count=probe.device_count,
        versions=dict(probe.versions),
        hooks=hooks,
    )


def _failed(
    blank: PluginReport, outcome: Outcome[tuple[PluginManager, Probe]], stage: str, timeout: float
) -> PluginReport:
    if not outcome.finished:
        reason = f"{stage} did not end within {timeout:g} s (OMNI_PROBE_TIMEOUT)"
    elif isinstance(outcome.error, BrokenPluginError):
        reason = _one_line(str(outcome.error))
    else:
        reason = f"{stage} raised {describe_error(outcome.error)}"
    return replace(blank, reason=reason, error=outcome.error)


def describe_error(error: BaseException | None) -> str:
    """Return an exception's type and message on one line, whatever its `__str__` does."""
    kind = type(error).__name__
    try:
        message = _one_line(str(error))
    except Exception:  # noqa: BLE001 - a foreign __str__; its type still tells
        return kind
    return f"{kind}: {message}" if message else kind


def _one_line(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "..."


def _manager() -> PluginManager:
    manager = PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager
