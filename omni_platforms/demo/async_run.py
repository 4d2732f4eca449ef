"""The same requests through the async output executor: everything after the forward moves away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from omni_platforms.demo.pack import encode_png, to_uint8
from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.spans import Span, append_span, lane_owners
from omni_platforms.outputs import AsyncOutputExecutor, OutputFuture, OutputTimeline
from omni_platforms.platform.interface import OmniPlatform

_AHEAD = 3
"""Requests in flight: enough that the device always has the next one, few enough for latency."""
_TIMEOUT_S = 60.0


class _Request:
    """One request on its way, and the moments that the executor's timeline does not have."""

    future: OutputFuture
    forward_seen: Future[float]

    def __init__(self, number: int) -> None:
        self.number = number
        self.launched = time.perf_counter()
        self.pack = self.encode = Span(0.0, 0.0, number)
        self.handed_over = 0.0

    def to_uint8(self, restored: Tensor) -> Tensor:
        start = time.perf_counter()
        pixels = to_uint8(restored)
        self.pack = Span(start, time.perf_counter(), self.number)
        return pixels

    def encode_png(self, pixels: Tensor) -> bytes:
        start = time.perf_counter()
        png = encode_png(pixels)
        self.encode = Span(start, time.perf_counter(), self.number)
        return png


def run_async(
    restore: Callable[[Tensor], Tensor],
    inputs: Sequence[Tensor],
    photos: int,
    outputs: AsyncOutputExecutor,
    tick: Callable[[], None],
) -> RunRecord:
    """Restore all `inputs`, which are on the executor's device, and hand each output over.

    Blocks until the last picture is encoded; `tick()` is called for each.
    `photos` says how many different photos the inputs begin with. Raises
    `OutputTimeoutError` when a picture takes longer than a minute.
    """
    record = RunRecord(
        name="async",
        photos=photos,
        mode=outputs.stats().mode,
        idle_measured=_how_measured(outputs.platform),
        threads=_threads(outputs),
    )
    moved_before = outputs.stats().bytes_copied
    waiting: deque[_Request] = deque()
    with ThreadPoolExecutor(1, "demo-watch") as watcher:
        record.start = time.perf_counter()
        for number, photo in enumerate(inputs):
            waiting.append(_launch(number, photo, restore, outputs, watcher))
            while waiting and (waiting[0].future.done() or len(waiting) > _AHEAD):
                _settle(record, waiting.popleft())
                tick()
        for request in waiting:
            _settle(record, request)
            tick()
        record.end = time.perf_counter()
    outputs.drain(_TIMEOUT_S)  # the bytes of an output are counted after its future is set
    record.bytes_moved = outputs.stats().bytes_copied - moved_before
    return record


def _launch(
    number: int,
    photo: Tensor,
    restore: Callable[[Tensor], Tensor],
    outputs: AsyncOutputExecutor,
    watcher: ThreadPoolExecutor,
) -> _Request:
    """Launch one forward and hand its output over."""
    request = _Request(number)
    restored = restore(photo)
    request.forward_seen = _watch_forward(outputs.platform, outputs.device, watcher)
    request.future = outputs.submit(
        restored, on_device=request.to_uint8, on_host=request.encode_png
    )
    request.handed_over = time.perf_counter()
    return request


def _watch_forward(
    platform: OmniPlatform, device: torch.device, watcher: ThreadPoolExecutor
) -> Future[float]:
    """Return a future of the moment at which the work enqueued so far was seen to end.

    The executor's own thread may be busy encoding when a forward ends, and
    would see it too late. Without events the host waits, as the executor must.
    """
    event = platform.record_device_event()
    if event is not None:
        return watcher.submit(_seen_at, platform, device, event)
    platform.synchronize(device)
    seen: Future[float] = Future()
    seen.set_result(time.perf_counter())
    return seen


def _seen_at(platform: OmniPlatform, device: torch.device, event: torch.Event) -> float:
    platform.set_device(device)
    platform.synchronize_event(event)
    return time.perf_counter()


def _settle(record: RunRecord, request: _Request) -> None:
    """Wait for one request's picture, and enter it and its spans in the record."""
    png = request.future.result(_TIMEOUT_S)
    timeline = request.future.timeline
    if timeline is None:
        raise AssertionError("a future that has its result has a timeline")
    seen = request.forward_seen.result(_TIMEOUT_S)
    forward_end = min(seen, timeline.copied, timeline.ready or seen)
    _enter_spans(record, request, timeline, forward_end)
    record.add_picture(png, timeline.resolved - request.launched)


def _enter_spans(
    record: RunRecord, request: _Request, timeline: OutputTimeline, forward_end: float
) -> None:
    lanes, number = record.lanes, request.number
    append_span(lanes["forward"], request.launched, forward_end, number)
    if record.mode == "async":
        copy = append_span(lanes["copy"], forward_end, timeline.copied, number)
        # The thread packs an output only when it has encoded the one before.
        free = lanes["encode"][-1].end if lanes["encode"] else copy.end
        append_span(lanes["pack"], max(copy.end, free), timeline.packed, number)
    else:  # `submit` has packed and copied, one after the other
        append_span(lanes["pack"], request.pack.start, request.pack.end, number)
        append_span(lanes["copy"], request.pack.end, request.handed_over, number)
    append_span(lanes["encode"], request.encode.start, request.encode.end, number)


def _how_measured(platform: OmniPlatform) -> str:
    if platform.record_device_event() is None:
        return "host clock, from launch to the end of a device synchronization"
    return (
        "host clock: a forward starts at its launch or at the end of the one before, whichever "
        "is later, and ends when a thread that waits for an event sees it (up to 2 % late)"
    )


def _threads(outputs: AsyncOutputExecutor) -> dict[str, str]:
    """Name who does the work of each lane."""
    behind = "background thread"
    if outputs.stats().mode == "async":
        return {
            "forward": "device",
            "copy": "device, side stream",
            "pack": behind,
            "encode": behind,
        }
    return {**lane_owners(outputs.device.type), "encode": behind}
