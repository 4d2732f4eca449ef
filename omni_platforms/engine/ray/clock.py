"""The clocks of other hosts, whose stamps are brought to this one's time."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import AsyncOutput, Message
from omni_platforms.engine.ray.library import load_ray

_TRIES = 3


class ShiftedChannel(Channel):
    """A channel from a host whose clock differs: stamps arrive in this host's time."""

    shift = 0.0
    """Seconds to add to what the other host says."""

    def receive(self, timeout: float | None = None) -> Message:
        """As `Channel.receive`."""
        message = super().receive(timeout)
        if self.shift and isinstance(message, AsyncOutput) and message.stamps:
            stamps = {phase: at + self.shift for phase, at in message.stamps.items()}
            message = dataclasses.replace(message, stamps=stamps)
        return message


def shift_of(actor: Any) -> float:
    """Return the seconds that this host's clock is ahead of the actor's host's.

    The quickest of a few answers tells best: the error is half of what it took, at most.
    """
    ray = load_ray()
    samples: list[tuple[float, float]] = []
    for _ in range(_TRIES):
        before = time.monotonic()
        theirs = ray.get(actor.clock.remote())
        after = time.monotonic()
        samples.append((after - before, (before + after) / 2 - theirs))
    return min(samples)[1]
