"""`run_demo`: read the photos, restore them twice, compare, and write the results."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from omni_platforms.demo.async_run import run_async
from omni_platforms.demo.blocking_run import run_blocking
from omni_platforms.demo.find import Found, find_photos, shipped_photos
from omni_platforms.demo.names import OutputFolder, readable
from omni_platforms.demo.noise import Pixels
from omni_platforms.demo.photo import Photo, read_photo
from omni_platforms.demo.progress import Stages
from omni_platforms.demo.record import RunRecord, different
from omni_platforms.demo.request import SEED, DemoRequest, FileResult, failed
from omni_platforms.demo.restore import Restorer
from omni_platforms.demo.result import DemoResult, LoadedPhoto
from omni_platforms.demo.write import write_results
from omni_platforms.errors import DemoError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.interface import OmniPlatform


def run_demo(request: DemoRequest, platform: OmniPlatform, stages: Stages) -> DemoResult:
    """Run the demo on `platform` and write its results; blocks until they are written.

    A file that cannot be used is reported in the result and the others still
    run. Raises `DemoError` when there is nothing to look for, or the folder for
    the results cannot be used.
    """
    entries = find_photos(request.arguments or shipped_photos())
    folder = OutputFolder(request.out, [entry.path for entry in entries])
    result = DemoResult(request, platform, platform.resolve_device())
    loaded = _read(entries, result, stages)
    if loaded:
        result.runs = _run_twice(loaded, result, stages)
        result.mismatches = different(*result.runs)
        with stages.stage("results", len(loaded) + 3) as tick:
            write_results(result, loaded, folder, tick)
    return result


def _read(entries: Sequence[Found], result: DemoResult, stages: Stages) -> list[LoadedPhoto]:
    """Read every file; enter a result for each and return those that can be restored."""
    loaded: list[LoadedPhoto] = []
    with stages.stage("reading", len(entries)) as tick:
        for entry in entries:
            try:
                photo = _read_one(entry, result.request.longest_side)
            except DemoError as error:
                result.files.append(failed(entry.path, error))
            else:
                seed = SEED + len(loaded)
                height, width = photo.pixels.shape[:2]
                file = FileResult(readable(photo.path), "", photo.notes, width, height)
                result.files.append(file)
                loaded.append(LoadedPhoto(photo, file, seed))
            tick()
    return loaded


def _read_one(entry: Found, longest_side: int) -> Photo:
    if entry.error is not None:
        raise entry.error
    return read_photo(entry.path, longest_side)


def _run_twice(
    loaded: Sequence[LoadedPhoto], result: DemoResult, stages: Stages
) -> tuple[RunRecord, RunRecord]:
    """Restore every photo `repeat` times, first blocking, then asynchronously."""
    request, platform, device = result.request, result.platform, result.device
    restore = Restorer(device, request.steps, request.noise)
    try:
        inputs = [_to_device(photo.noisy(request.noise), device) for photo in loaded]
        with stages.stage("warming up", 1):
            _warm_up(restore, inputs, platform, device)
        requests, photos = inputs * request.repeat, len(inputs)
        with stages.stage("blocking run", len(requests)) as tick:
            blocking = run_blocking(restore, requests, photos, platform, device, tick)
        with (
            stages.stage("async run", len(requests)) as tick,
            AsyncOutputExecutor(platform, device) as outputs,
        ):
            return blocking, run_async(restore, requests, photos, outputs, tick)
    except torch.OutOfMemoryError as error:
        raise DemoError(
            f"{device} has not enough memory for these photos: lower --longest-side, "
            "or restore fewer at a time"
        ) from error


def _to_device(pixels: Pixels, device: torch.device) -> Tensor:
    """Return the pixels as a batch of one, `[1, 3, height, width]`, on `device`."""
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous().to(device)


def _warm_up(
    restore: Restorer, inputs: Sequence[Tensor], platform: OmniPlatform, device: torch.device
) -> None:
    """Pay for memory and kernels before anything is measured: once a shape, both ways."""
    shapes = list({photo.shape: photo for photo in inputs}.values())
    run_blocking(restore, shapes, 0, platform, device, _no_tick)
    with AsyncOutputExecutor(platform, device) as outputs:
        run_async(restore, shapes, 0, outputs, _no_tick)


def _no_tick() -> None:
    """Show nothing."""
