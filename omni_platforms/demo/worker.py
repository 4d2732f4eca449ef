"""`PhotoWorker`: the demo's model as a worker class, for `omni-platforms run`.

    omni-platforms run omni_platforms.demo.worker:PhotoWorker --requests photos.jsonl --out restored

A line of the file names a photo; whatever else it holds is optional::

    {"id": "harbour", "photo": "harbour.jpg", "noise": 0.08, "steps": 24, "seed": 20}
    {"id": "cat", "photo": "shipped:chelsea.png"}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from omni_platforms.demo.find import shipped_photos
from omni_platforms.demo.noise import add_noise
from omni_platforms.demo.pack import to_uint8
from omni_platforms.demo.photo import read_photo
from omni_platforms.demo.request import SEED
from omni_platforms.demo.restore import Restorer
from omni_platforms.errors import DemoError

_SHIPPED = "shipped:"
_DEFAULTS = {"steps": 24, "noise": 0.08, "longest_side": 1600, "seed": SEED}
_KINDS = {"steps": int, "noise": (int, float), "longest_side": int, "seed": int}


class PhotoWorker:
    """Restores one photo a request. `config` may hold other defaults for what a request omits."""

    def __init__(self, rank: int, device: torch.device, config: dict[str, Any] | None) -> None:
        self._device = device
        self._defaults = {**_DEFAULTS, **(config or {})}

    def execute_model(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the photo, restored, as uint8 `[height, width, 3]` on the device.

        Reads the file first; the device's work is enqueued and not waited for. Raises
        `DemoError` for a photo, or a setting, that cannot be used.
        """
        settings = _settings({**self._defaults, **request})
        photo = read_photo(_path(request.get("photo")), settings["longest_side"])
        pixels = add_noise(photo.pixels, settings["noise"], settings["seed"])
        batch = torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous().to(self._device)
        restore = Restorer(self._device, settings["steps"], settings["noise"])
        return {"image": to_uint8(restore(batch)), "notes": list(photo.notes)}


def _settings(found: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _KINDS.items():
        value = found[name]
        if isinstance(value, bool) or not isinstance(value, kind) or value < 0:  # type: ignore[arg-type]
            raise DemoError(f"{name} is a number that is not negative, and not {value!r}")
    return {name: found[name] for name in _KINDS}


def _path(name: Any) -> Path:
    if not isinstance(name, str) or not name:
        raise DemoError('a request names its file: {"photo": "path/to/photo.jpg"}')
    if not name.startswith(_SHIPPED):
        return Path(name)
    shipped = {photo.name: photo for photo in shipped_photos()}
    wanted = name.removeprefix(_SHIPPED)
    if wanted not in shipped:
        raise DemoError(f"scikit-image ships no {wanted!r}; it has {', '.join(sorted(shipped))}")
    return shipped[wanted]
