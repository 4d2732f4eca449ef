"""What the environment asks for, when the package is imported. Imports no torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from omni_platforms import settings
from omni_platforms.errors import OmniError
from omni_platforms.observe import hub


def start() -> None:
    """Begin to observe as the settings say.

    What cannot be had is a `RuntimeWarning`: an engine must not fail for it.
    """
    for begin in (_log, _trace, _expose, _make_spans, _make_ranges):
        _warned(begin)


def _warned(begin: Callable[[], object]) -> None:
    try:
        begin()
    except (OmniError, OSError, ImportError) as error:
        warnings.warn(f"{error} (this process goes on without)", RuntimeWarning, stacklevel=4)


def _expose() -> None:
    if settings.read("OMNI_EXPOSE"):
        from omni_platforms.observe.server import expose_with_first

        expose_with_first()


def _make_spans() -> None:
    if settings.read("OMNI_OTEL"):
        from omni_platforms.observe.spans import instrument

        instrument()


def _make_ranges() -> None:
    if settings.read("OMNI_PROFILER_RANGES"):
        from omni_platforms.observe.ranges import Ranges

        hub.add(Ranges())


def _log() -> None:
    form = settings.read("OMNI_LOG")
    if form is not None:
        from omni_platforms.observe.logs import log_to_stderr

        log_to_stderr(as_json=form == "json")


def _trace() -> None:
    folder = settings.read("OMNI_TRACE")
    if folder is not None:
        from omni_platforms.observe.recorder import Recorder

        hub.add(Recorder(Path(folder).absolute(), settings.read("OMNI_TRACE_EVENTS")))
