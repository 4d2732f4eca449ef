"""`AsyncPipeline`: pictures of any pipeline, made behind the next call."""

from __future__ import annotations

import builtins
import io
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from omni_platforms import (
    AsyncOutputExecutor,
    ExecutorClosedError,
    MissingExtraError,
    UnsupportedOutputError,
    reset_platform,
    set_current_platform,
)
from omni_platforms.integrations import diffusers
from omni_platforms.integrations.diffusers import AsyncPipeline, png
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.simulator import Simulation
from tests.integrations.pipelines import Pipeline
from tests.simulated import NAME

TIMEOUT_S = 60


@pytest.fixture
def cpu() -> Any:
    set_current_platform(CpuPlatform())
    yield
    reset_platform()


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("shape", "mode"), [((2, 3, 8, 6), "RGB"), ((1, 4, 5, 7), "RGBA"), ((1, 1, 5, 7), "L")]
)
def test_pictures_are_those_of_the_pipeline(shape: tuple[int, ...], mode: str) -> None:
    pipeline = Pipeline(shape=shape)
    with AsyncPipeline(pipeline) as images:
        pictures = images(3).result(TIMEOUT_S)
    assert [picture.mode for picture in pictures] == [mode] * shape[0]
    for picture, want in zip(pictures, pipeline.want(3), strict=True):
        assert np.array_equal(np.array(picture), want.squeeze(-1).numpy())


@pytest.mark.usefixtures("cpu")
def test_a_clip_is_a_list_of_pictures() -> None:
    pipeline = Pipeline(shape=(2, 3, 3, 8, 6))
    with AsyncPipeline(pipeline, encode=len) as clips:
        assert clips(1).result(TIMEOUT_S) == [3, 3]
    with AsyncPipeline(pipeline) as clips:
        made = clips(1).result(TIMEOUT_S)
    assert np.array_equal(np.stack([[*map(np.array, clip)] for clip in made]), pipeline.want(1))


@pytest.mark.usefixtures("cpu")
def test_encoding_is_not_the_callers_work() -> None:
    threads = []

    def encode(picture: Image.Image) -> bytes:
        threads.append(threading.current_thread())
        return png(picture)

    with AsyncPipeline(Pipeline(), encode=encode) as images:
        (first, _) = images(5).result(TIMEOUT_S)
    assert threading.current_thread() not in threads
    assert len(threads) == 2
    assert np.array_equal(np.array(Image.open(io.BytesIO(first))), Pipeline().want(5)[0])


@pytest.mark.usefixtures("cpu")
def test_an_error_of_encode_costs_its_own_pictures() -> None:
    def encode(picture: Image.Image) -> bytes:
        if picture.getpixel((0, 0)) == tuple(Pipeline().want(1)[0, 0, 0].tolist()):
            raise OSError("no space left")
        return png(picture)

    with AsyncPipeline(Pipeline(), encode=encode) as images:
        bad, good = images(1), images(2)
        with pytest.raises(OSError, match="no space left"):
            bad.result(TIMEOUT_S)
        assert len(good.result(TIMEOUT_S)) == 2


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("argument", [{"output_type": "pil"}, {"return_dict": False}])
def test_arguments_of_its_own_are_refused(argument: dict[str, Any]) -> None:
    with AsyncPipeline(Pipeline()) as images, pytest.raises(ValueError, match=next(iter(argument))):
        images(1, **argument)


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "result",
    [
        SimpleNamespace(images=["a picture"]),
        SimpleNamespace(audios=torch.zeros(1, 2, 10)),
        SimpleNamespace(images=torch.zeros(1, 8, 8, 3)),
    ],
)
def test_what_is_no_picture_is_refused(result: Any) -> None:
    refused = pytest.raises(UnsupportedOutputError, match=r"returned SimpleNamespace.*submit")
    with AsyncPipeline(lambda **_: result) as images, refused:
        images()


@pytest.mark.usefixtures("cpu")
def test_an_executor_of_the_callers_stays_open() -> None:
    with AsyncOutputExecutor() as outputs:
        with AsyncPipeline(Pipeline(), outputs) as images:
            images(1).result(TIMEOUT_S)
        assert outputs.submit(torch.ones(2)).result(TIMEOUT_S).tolist() == [1, 1]
    with AsyncPipeline(Pipeline()) as images:
        pass
    with pytest.raises(ExecutorClosedError):
        images(1)


@pytest.mark.usefixtures("cpu")
def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return find(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'omni-platforms\[diffusers\]'"):
        AsyncPipeline(Pipeline())


def waits_of_three_calls(sim: Simulation) -> int:
    """Count the caller's waits for the device in three calls; check every picture."""
    sim.reset("lazy")
    pipeline = Pipeline(NAME)
    with AsyncPipeline(pipeline) as images:
        images(0).result(TIMEOUT_S)  # what is allocated once
        before = sim.host_waits_of()
        futures = [images(seed) for seed in range(3)]
        waits = sim.host_waits_of() - before
        for seed, future in enumerate(futures):
            got = np.stack([*map(np.array, future.result(TIMEOUT_S))])
            assert np.array_equal(got, pipeline.want(seed))
    return waits


def test_a_call_waits_for_no_device(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    set_current_platform(sim.platform)
    try:
        uploads = 3  # the stand-in's own blocking copies to the device
        assert waits_of_three_calls(sim) == uploads
        # The bug that it exists to avoid: the pixels are copied before the call returns.
        find = diffusers._pixels_of
        monkeypatch.setattr(diffusers, "_pixels_of", lambda *given: find(*given).cpu())
        assert waits_of_three_calls(sim) == 2 * uploads
    finally:
        reset_platform()


def two_calls(sim: Simulation) -> None:
    """Each picture is of its own call, whatever runs first."""
    set_current_platform(sim.platform)
    try:
        pipeline = Pipeline(NAME)
        with AsyncPipeline(pipeline) as images:
            futures = [images(seed) for seed in range(2)]
            for seed, future in enumerate(futures):
                got = np.stack([*map(np.array, future.result(TIMEOUT_S))])
                assert np.array_equal(got, pipeline.want(seed)), "CORRUPT"
    finally:
        reset_platform()


def test_pictures_are_right_under_every_schedule(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sim.explore(lambda: two_calls(sim))
    assert found.ok, str(found)
    nothing = lambda *_: None  # noqa: E731
    monkeypatch.setattr(OmniPlatform, "stream_wait_event", nothing)
    assert not sim.explore(lambda: two_calls(sim)).ok
