"""`Tally`: counts and times of the requests that ended, in little memory."""

from __future__ import annotations

import statistics
from array import array
from typing import Any

from omni_platforms.jobs.records import STAGES, Ended

_MOST_NAMED = 100


class Tally:
    """Counts what ended. One thread at a time may call it."""

    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0
        self.failures: list[dict[str, Any]] = []
        """The first hundred, with their errors."""
        self._total = array("d")
        self._stages = {stage: array("d") for stage in STAGES}

    def add(self, ended: Ended) -> None:
        """Count one request."""
        if ended.error is not None:
            self._add_failure(ended, ended.error)
            return
        self.ok += 1
        self._total.append(ended.finished - ended.submitted)
        for stage, (start, end) in ended.spans.items():
            self._stages[stage].append(end - start)

    def _add_failure(self, ended: Ended, error: BaseException) -> None:
        self.failed += 1
        if len(self.failures) < _MOST_NAMED:
            what = f"{type(error).__name__}: {error}"
            request = ended.request
            self.failures.append(
                {"id": request.id, "line": request.line, "stage": ended.stage, "error": what}
            )

    def latency(self) -> dict[str, float] | None:
        """Return median, 90th percentile and longest time of a request, in seconds."""
        if not self._total:
            return None
        ordered = sorted(self._total)
        return {
            "median": round(statistics.median(ordered), 6),
            "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 6),
            "max": round(ordered[-1], 6),
        }

    def stage_medians(self) -> dict[str, float]:
        """Return the median time that a request spent where, in seconds."""
        return {
            stage: round(statistics.median(times), 6)
            for stage, times in self._stages.items()
            if times
        }
