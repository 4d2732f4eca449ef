"""All captures under way, and what they forbid to whom."""

from __future__ import annotations

from collections.abc import Callable

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator.graphs.capture import Capture
from omni_platforms.simulator.task import Queue, Task


class Captures:
    """Asked by the scheduler and the allocators at every call that a capture may forbid.

    Used with the gate held. While nothing is captured each question costs a
    look at an empty list.
    """

    def __init__(self) -> None:
        self.active: list[Capture] = []

    def of(self, queue: Queue, waits_for: Task | None) -> Capture | None:
        """Return the capture that a task on `queue` belongs to, or `None`.

        A stream that waits for captured work joins the capture, as in CUDA.
        """
        source = None if waits_for is None else waits_for.capture
        if source is None or queue.capture is source:
            return queue.capture
        if source.over:
            raise SimulatedCaptureError(
                f"{waits_for} was captured, by a capture that is over: it means nothing outside "
                "its graph. Record the event again, after a replay."
            )
        if queue.capture is not None:
            source.break_off(f"{queue} takes part in another capture and waits for {waits_for}")
        if queue.key[1] == 0:
            source.break_off(f"{queue} is a default stream, which cannot be captured,")
        source.join(queue)
        return source

    def check_host_call(self, what: str, touched: Capture | None = None) -> None:
        """Refuse a wait or a query of the host where a capture forbids it.

        `touched` is the capture that the call is about, if it is about one. Raises
        `SimulatedCaptureError`, and breaks the captures that forbid it.
        """
        if touched is not None and touched.over:
            raise SimulatedCaptureError(
                f"{what}: it was recorded in a graph capture, and the host can neither wait for "
                "it nor ask. Record an event after the replay."
            )
        self._refuse(what, lambda capture: capture is touched or capture.forbids_here())

    def check_device(self, device: int) -> None:
        """Refuse a wait for `device` while any of its streams captures, in each mode."""

        def forbids(capture: Capture) -> bool:
            here = any(queue.key[0] == device for queue in capture.streams)
            return here or capture.forbids_here()

        self._refuse(f"a wait (device {device})", forbids)

    def check_growth(self, what: str, queue: Queue) -> None:
        """Refuse new memory of the system while a capture forbids it.

        The allocators allow it on a thread whose current stream `queue` captures.
        """
        if queue.capture is None:
            self._refuse(what, Capture.forbids_here)

    def _refuse(self, what: str, forbids: Callable[[Capture], bool]) -> None:
        broken = [capture for capture in self.active if forbids(capture)]
        for capture in broken[1:]:
            capture.broken = capture.broken or what
        if broken:
            broken[0].break_off(what)


def refuse_pageable(queue: Queue, what: str) -> None:
    """Refuse a copy with host memory that is not pinned while `queue` captures.

    The capture goes on: torch refuses such a copy before it reaches the device.
    """
    if queue.capture is not None:
        raise SimulatedCaptureError(
            f"{what} while {queue.capture} lasts: host memory must be pinned, and the copy direct, "
            "to be part of a graph. Copy before the capture, or pin the memory."
        )
