"""`summary.json`: what a run was asked for, what it did, and what is left to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omni_platforms.errors import JobError
from omni_platforms.jobs.leaves import write_text
from omni_platforms.jobs.modes import Mode
from omni_platforms.jobs.requests import BadLine
from omni_platforms.jobs.results import OUTPUTS, RESULTS, SUMMARY, TRACE
from omni_platforms.jobs.tally import Tally

SCHEMA_VERSION = 1
_WRITTEN = (RESULTS, OUTPUTS, SUMMARY, TRACE)
_MOST_NAMED = 100


@dataclass
class Summary:
    """One run. Times in seconds."""

    worker: str
    requests_file: str
    folder: Path
    mode: Mode
    platform: str
    requests: int
    finished_before: int
    bad_lines: Sequence[BadLine]
    devices: list[str] = field(default_factory=list)
    started_at: str = ""
    seconds: float = 0.0
    """From the first request to the last result, without the start of the workers."""
    start_seconds: float = 0.0
    """How long the workers took to come up."""
    tally: Tally = field(default_factory=Tally)
    in_flight: list[str] = field(default_factory=list)
    """The ids of requests that were at a worker when the run ended, and have no result."""
    interrupted_by: str | None = None
    error: str | None = None
    """What ended the run before its time."""

    @property
    def unfinished(self) -> int:
        """How many requests have no result: `--resume` runs them, and those that failed."""
        return self.requests - self.finished_before - self.tally.ok - self.tally.failed

    @property
    def ok(self) -> bool:
        """Whether every line of the file has its output."""
        whole = not (self.tally.failed or self.bad_lines or self.unfinished)
        return whole and self.error is None

    @property
    def rate(self) -> float | None:
        """Requests a second, `None` when nothing ended."""
        ended = self.tally.ok + self.tally.failed
        return round(ended / self.seconds, 4) if ended and self.seconds else None

    def document(self) -> dict[str, Any]:
        """Return it as JSON, which `--json` prints and `summary.json` holds."""
        tally = self.tally
        return {
            "schema_version": SCHEMA_VERSION,
            "ok": self.ok,
            "worker": self.worker,
            "requests_file": self.requests_file,
            "platform": self.platform,
            "devices": self.devices,
            "workers": self.mode.workers,
            "mode": self.mode.taken,
            "mode_asked": self.mode.asked,
            "mode_reason": self.mode.reason,
            "window": self.mode.window,
            "started_at": self.started_at,
            "start_seconds": round(self.start_seconds, 3),
            "seconds": round(self.seconds, 6),
            "counts": {
                "requests": self.requests,
                "ok": tally.ok,
                "failed": tally.failed,
                "finished_before": self.finished_before,
                "unfinished": self.unfinished,
                "bad_lines": len(self.bad_lines),
            },
            "requests_per_s": self.rate,
            "latency_s": tally.latency(),
            "stage_medians_s": tally.stage_medians(),
            "failures": tally.failures,
            "bad_lines": [asdict(line) for line in self.bad_lines[:_MOST_NAMED]],
            "in_flight": self.in_flight[:_MOST_NAMED],
            "interrupted_by": self.interrupted_by,
            "error": self.error,
            "written": {name: str(self.folder / name) for name in _WRITTEN},
        }

    def write(self) -> None:
        """Write `summary.json`. Raises `JobError` when the folder refuses it."""
        path = self.folder / SUMMARY
        try:
            write_text(path, json.dumps(self.document(), indent=2) + "\n")
        except OSError as error:
            raise JobError(f"{path} cannot be written ({error.strerror}): make room") from error

    def lines(self) -> list[str]:
        """Return it for people."""
        tally = self.tally
        parts = [f"{tally.ok} of {self.requests} requests done"]
        parts += [f"{self.finished_before} done before"] if self.finished_before else []
        parts += [f"{tally.failed} failed"] if tally.failed else []
        parts += [f"lines that are no request: {len(self.bad_lines)}"] if self.bad_lines else []
        parts += [f"{self.unfinished} left"] if self.unfinished else []
        lines = [f"{', '.join(parts)}; {self._pace()}{self.mode}"]
        if tally.failed or self.unfinished:
            lines.append("run again with --resume for what failed or is left")
        return [*lines, f"results: {self.folder / RESULTS}"]

    def _pace(self) -> str:
        latency = self.tally.latency()
        if self.rate is None or latency is None:
            return ""
        return f"{self.rate:.2f} a second, median {latency['median']:.3f} s each, "
