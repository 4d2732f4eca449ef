"""One line of the log for each event in the life of an executor, with its facts as fields.

The text is `event key=value key=value`; a formatter finds the parts in the record's attributes
`event` and `fields`. Nothing is logged for an output: `omni_platforms.observe` tells of those.
"""

from __future__ import annotations

import logging
from typing import Any


def log_event(logger: logging.Logger, event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event. Costs a question where nobody listens to `level`."""
    if logger.isEnabledFor(level):
        text = " ".join((event, *(f"{key}={_word(value)}" for key, value in fields.items())))
        logger.log(level, "%s", text, extra={"event": event, "fields": fields}, stacklevel=2)


def _word(value: Any) -> str:
    """Return a value as one word, in quotes where it would be several."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    plain = text and not any(c.isspace() or c in "\"='" for c in text)
    return text if plain else repr(text)
