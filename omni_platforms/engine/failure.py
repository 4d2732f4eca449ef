"""An exception on its way to another process: the exception itself where it pickles, and its text.

What arrives is the original type, caused by `WorkerTraceback`, which shows the
worker's traceback. What does not pickle, or is no `Exception`, arrives as
`RequestFailedError`.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from omni_platforms.engine.payload import Pickled
from omni_platforms.errors import OmniError, RequestFailedError

_MOST_TEXT = 64 << 10
_MOST_BYTES = 1 << 20


class WorkerTraceback(Exception):
    """The cause of an exception that came from a worker; its text is the worker's traceback."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}" if self.args else ""


@dataclass(frozen=True)
class ErrorRecord:
    """What is known of an exception in another process."""

    type: str
    """The qualified name of its class."""
    text: str
    traceback: str
    pickled: Pickled | None

    @classmethod
    def of(cls, error: BaseException) -> ErrorRecord:
        """Describe `error`. Never raises, whatever the exception's own methods do."""
        kind = type(error)
        try:
            text, lines = str(error), "".join(traceback.format_exception(error))
        except Exception as broken:  # noqa: BLE001  an exception that cannot even be printed
            text, lines = f"(its text cannot be had: {broken!r})", ""
        name = f"{kind.__module__}.{kind.__qualname__}"
        return cls(name, text[-_MOST_TEXT:], lines[-_MOST_TEXT:], _pickled(error))

    def restore(self) -> Exception:
        """Return the exception to raise here. Never raises."""
        error = self._original()
        error.__cause__ = WorkerTraceback(self.traceback or f"{self.type}: {self.text}")
        return error

    def _original(self) -> Exception:
        if self.pickled is not None:
            try:
                error = self.pickled.load()
            except OmniError:
                error = None
            if isinstance(error, Exception):
                return error
        return RequestFailedError(f"{self.type}: {self.text}")


def _pickled(error: BaseException) -> Pickled | None:
    """Pickle an exception, unless it cannot be, or its size says that it carries data."""
    try:
        pickled = Pickled.of(error)
    except Exception:  # noqa: BLE001  whatever it is, the text goes without it
        return None
    return pickled if pickled.nbytes <= _MOST_BYTES else None
