"""What a plugin answers when it is asked whether its device is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class ProbeStatus(str, Enum):
    """How a platform stands on this machine."""

    AVAILABLE = "AVAILABLE"
    """The software stack and at least one device are there."""
    ABSENT = "ABSENT"
    """No stack or no device: normal, and never warned about."""
    BROKEN = "BROKEN"
    """Something is there and does not work: always shown with its cause."""


@dataclass(frozen=True)
class Probe:
    """A plugin's answer to `omni_platforms_probe`.

    `reason` is one line: for AVAILABLE what was found, otherwise why not and,
    for BROKEN, the remedy. `device_count` counts devices visible to this
    process. `versions` maps component names (`torch`, `driver`) to versions.
    """

    name: str
    status: ProbeStatus
    reason: str = ""
    device_count: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types, so that a wrong answer is seen where it was given.

        Raises `TypeError` for a wrong type and `ValueError` for a wrong value.
        """
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"Probe.name must be a non-empty string, not {self.name!r}")
        if not isinstance(self.status, ProbeStatus):
            raise TypeError(f"Probe.status must be a ProbeStatus, not {self.status!r}")
        if not isinstance(self.device_count, int) or self.device_count < 0:
            raise ValueError(f"Probe.device_count must be a count, not {self.device_count!r}")
        if self.status is ProbeStatus.AVAILABLE and self.device_count == 0:
            raise ValueError("an AVAILABLE probe must count at least one device")
        if self.status is ProbeStatus.BROKEN and not self.reason:
            raise ValueError("a BROKEN probe must give its cause in `reason`")
