"""The package's log for machines: one JSON object a line."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

_TEXT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line.

    It has `time` (UTC, ISO 8601), `level`, `logger`, `pid`, `thread` and `message`; of an event
    also `event` and its facts under `fields`; of an error its traceback as `error`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event is not None:
            line |= {"event": event, "fields": getattr(record, "fields", {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to_stderr(as_json: bool) -> logging.Handler:
    """Write the package's log, from INFO, to standard error; return the handler.

    The records go to the root logger's handlers as well, where a program has some.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(_TEXT))
    logger = logging.getLogger("omni_platforms")
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    return handler
