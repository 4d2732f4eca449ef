"""The run as most loops do it: forward, copy, pack, encode, and only then the next forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from omni_platforms.demo.pack import encode_png, to_uint8
from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.spans import LANES, append_span, lane_owners
from omni_platforms.platform.interface import OmniPlatform


def run_blocking(
    restore: Callable[[Tensor], Tensor],
    inputs: Sequence[Tensor],
    photos: int,
    platform: OmniPlatform,
    device: torch.device,
    tick: Callable[[], None],
) -> RunRecord:
    """Restore all `inputs`, which are on `device`, one after the other on this thread.

    Blocks until the last picture is encoded; `tick()` is called after each.
    `photos` says how many different photos the inputs begin with.
    """
    record = RunRecord(
        name="blocking",
        photos=photos,
        mode="blocking",
        idle_measured="host clock, from launch to the end of a device synchronization",
        threads=lane_owners(device.type),
    )
    record.start = time.perf_counter()
    for number, photo in enumerate(inputs):
        _one_request(record, restore, photo, number, platform, device)
        tick()
    record.end = time.perf_counter()
    return record


def _one_request(
    record: RunRecord,
    restore: Callable[[Tensor], Tensor],
    photo: Tensor,
    number: int,
    platform: OmniPlatform,
    device: torch.device,
) -> None:
    moments = [time.perf_counter()]
    restored = restore(photo)
    platform.synchronize(device)
    moments.append(time.perf_counter())
    on_host = restored.cpu()
    moments.append(time.perf_counter())
    pixels = to_uint8(on_host)
    moments.append(time.perf_counter())
    png = encode_png(pixels)
    moments.append(time.perf_counter())
    if on_host is not restored:  # `cpu()` of a host tensor copies nothing
        record.bytes_moved += on_host.nbytes
    for lane, start, end in zip(LANES, moments, moments[1:], strict=False):
        append_span(record.lanes[lane], start, end, number)
    record.add_picture(png, moments[-1] - moments[0])
