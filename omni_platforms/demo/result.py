"""What a demo did, before it is printed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from omni_platforms.demo.noise import Pixels, add_noise
from omni_platforms.demo.photo import Photo
from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.request import DemoRequest, FileResult
from omni_platforms.platform.interface import OmniPlatform


@dataclass(frozen=True)
class LoadedPhoto:
    """A photo that can be restored, the result to fill in, and the seed of its noise."""

    photo: Photo
    file: FileResult
    seed: int

    def noisy(self, sigma: float) -> Pixels:
        """Return its pixels with noise, the same at every call."""
        return add_noise(self.photo.pixels, sigma, self.seed)


@dataclass
class DemoResult:
    """A result a file, the blocking and the async run (none without a photo), files written.

    `mismatches` lists the requests whose pictures differ between the runs;
    `written` has the paths of "sheet", "timeline" and "trace".
    """

    request: DemoRequest
    platform: OmniPlatform
    device: torch.device
    files: list[FileResult] = field(default_factory=list)
    runs: tuple[RunRecord, RunRecord] | None = None
    mismatches: list[int] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every file was restored and both runs made the same pictures."""
        return not self.mismatches and all(file.ok for file in self.files)
