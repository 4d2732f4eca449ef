"""Pipelines of the diffusers library whose pictures leave the device behind the next call.

Needs the extra `diffusers`. Nothing here imports the library itself: whatever is called as its
pipelines are, and returns what they return, will do.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from omni_platforms.errors import MissingExtraError, UnsupportedOutputError
from omni_platforms.outputs.executor import AsyncOutputExecutor
from omni_platforms.outputs.future import OutputFuture

if TYPE_CHECKING:
    from PIL.Image import Image

# A tensor that stays on the device; with "pil" a pipeline copies and waits itself.
_ARGUMENTS = {"output_type": "pt", "return_dict": True}
_DIMENSIONS = {"images": 4, "frames": 5}
_CHANNELS = (1, 3, 4)


class AsyncPipeline:
    """Calls a pipeline and returns a future of its pictures, without waiting for the device.

    Parameters:
        pipeline: any pipeline whose result has `images` `[N, C, H, W]` or, for clips,
            `frames` `[N, F, C, H, W]` when it is called with `output_type="pt"`.
        outputs: the executor to use, which stays yours to close; one of its own when `None`,
            for the pipeline's device or, where that is none of the current platform's (weights
            that are offloaded to the host), for the calling thread's current device.
        encode: called on the background thread with each picture, or with the list of a
            clip's frames; what it returns stands in its place. `png` is one.

    A call runs the pipeline on the calling thread: one thread at a time, as pipelines
    themselves. It returns when the pipeline does, which has enqueued its last kernels by
    then and not waited for them; what waits inside (a scheduler that reads a value) still does.

    The future's result is a list of `PIL.Image.Image`, or of lists of them, the same bit for bit
    as the pipeline's own with `output_type="pil"`. Values are brought to uint8 on the side stream,
    so a quarter of the bytes are copied; pictures are made and encoded on the background thread. An
    error there is the future's. Pictures that a pipeline's safety checker blanks stay blank.

    Raises `MissingExtraError` without Pillow, and what `AsyncOutputExecutor` raises.
    """

    def __init__(
        self,
        pipeline: Any,
        outputs: AsyncOutputExecutor | None = None,
        *,
        encode: Callable[[Any], Any] | None = None,
    ) -> None:
        _check_pillow()
        self.pipeline = pipeline
        self._own = _executor_for(pipeline) if outputs is None else None
        self._outputs = outputs or self._own
        self._encode = encode

    def __call__(self, *args: Any, **kwargs: Any) -> OutputFuture:
        """Call the pipeline with these arguments; return the future of its pictures.

        Raises `ValueError` for another `output_type` or `return_dict` than its own,
        `UnsupportedOutputError` when the result has no such tensors, what the pipeline raises,
        and what `AsyncOutputExecutor.submit` raises.
        """
        for name, value in _ARGUMENTS.items():
            if kwargs.setdefault(name, value) != value:
                raise ValueError(
                    f"{name}={kwargs[name]!r}: AsyncPipeline calls the pipeline with {value!r} and "
                    "makes the pictures itself. Leave the argument out, or call the pipeline."
                )
        pixels = _pixels_of(self.pipeline, self.pipeline(*args, **kwargs))
        assert self._outputs is not None
        return self._outputs.submit(pixels, on_device=_to_bytes, on_host=self._pictures)

    def close(self) -> None:
        """Deliver what is in flight and end an executor of its own, as its `close` does."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> AsyncPipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _pictures(self, pixels: torch.Tensor) -> list[Any]:
        """Make pictures of `[N, H, W, C]`, clips of `[N, F, H, W, C]`. On the background thread."""
        made = [_clip(each) if each.ndim == 4 else _picture(each) for each in pixels]
        return made if self._encode is None else [self._encode(each) for each in made]


def png(picture: Image) -> bytes:
    """Return a picture as a PNG file's bytes, without loss. For `encode`."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _check_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as missing:
        raise MissingExtraError(
            "pictures need Pillow: pip install 'omni-platforms[diffusers]'"
        ) from missing


def _executor_for(pipeline: Any) -> AsyncOutputExecutor:
    from omni_platforms.platform.selection import current_platform

    platform = current_platform()
    device = getattr(pipeline, "device", None)
    ours = device is not None and device.type == platform.device_type
    return AsyncOutputExecutor(platform, device if ours else None)


def _pixels_of(pipeline: Any, result: Any) -> torch.Tensor:
    for name, dimensions in _DIMENSIONS.items():
        pixels = getattr(result, name, None)
        if not isinstance(pixels, torch.Tensor):
            continue
        if pixels.ndim == dimensions and pixels.shape[-3] in _CHANNELS:
            return pixels
    raise UnsupportedOutputError(
        f"{type(pipeline).__name__} returned {type(result).__name__}, which has neither images "
        "[N, C, H, W] nor frames [N, F, C, H, W] as a tensor with 1, 3 or 4 channels. Call the "
        "pipeline itself, and hand its output to AsyncOutputExecutor.submit."
    )


def _to_bytes(pixels: torch.Tensor) -> torch.Tensor:
    """Bring values of 0 to 1 to uint8, channels last. On the side stream."""
    return (pixels.float() * 255).round_().clamp_(0, 255).to(torch.uint8).movedim(-3, -1)


def _clip(frames: torch.Tensor) -> list[Image]:
    return [_picture(frame) for frame in frames]


def _picture(pixels: torch.Tensor) -> Image:
    from PIL import Image

    return Image.fromarray(pixels.squeeze(-1).contiguous().numpy())
