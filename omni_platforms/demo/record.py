"""`RunRecord`: what one run of all requests did, and when."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from omni_platforms.demo.spans import Lanes, idle_share, new_lanes


@dataclass
class RunRecord:
    """One run: its spans a lane, its pictures, its figures. Times in seconds.

    `threads` names who did the work of each lane. `bytes_moved` counts what was
    copied to the host. Only the first picture of each photo is kept; `digests`
    has one of every picture.
    """

    name: str
    photos: int
    mode: str
    idle_measured: str
    threads: dict[str, str]
    lanes: Lanes = field(default_factory=new_lanes)
    start: float = 0.0
    end: float = 0.0
    bytes_moved: int = 0
    latencies: list[float] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)

    def add_picture(self, png: bytes, latency: float) -> None:
        """Take the picture of the next request, which took `latency` seconds."""
        self.digests.append(hashlib.sha256(png).digest())
        self.latencies.append(latency)
        if len(self.pictures) < self.photos:
            self.pictures.append(png)

    @property
    def requests_per_s(self) -> float:
        """Requests a second, from the first launch to the last picture."""
        return len(self.digests) / max(self.end - self.start, 1e-9)

    @property
    def latency_median(self) -> float:
        """The median time from a request's launch to its picture."""
        return statistics.median(self.latencies)

    @property
    def idle_share(self) -> float:
        """Which share of the time the device idled between forwards, 0 to 1."""
        return idle_share(self.lanes["forward"])

    def median(self, lane: str) -> float:
        """The median time that one request spent in `lane`."""
        return statistics.median(span.duration for span in self.lanes[lane])

    def mean(self, lane: str) -> float:
        """The mean time that one request spent in `lane`."""
        return statistics.fmean(span.duration for span in self.lanes[lane])


def different(one: RunRecord, other: RunRecord) -> list[int]:
    """Return the numbers of the requests whose pictures are not the same, bit for bit."""
    pairs: Sequence[tuple[bytes, bytes]] = list(zip(one.digests, other.digests, strict=True))
    return [number for number, (left, right) in enumerate(pairs) if left != right]
