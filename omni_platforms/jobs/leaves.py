"""How each kind of leaf becomes a file.

| leaf | file |
|---|---|
| uint8 tensor or array, HxWx3 or 3xHxW | PNG, where Pillow and NumPy are (no bit is lost) |
| any other tensor | .pt, by torch.save: every dtype, which .npy does not hold |
| any other array | .npy |
| a picture of Pillow | PNG |
| bytes | .png or .jpg where they begin as such a file does, .bin otherwise |
| any other object | .pkl |

A file gets its name when it is whole, so a kill leaves no half one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

Write = Callable[[BinaryIO], object]
_PNG_LEVEL = 1  # level 6 takes twice as long for files that are 10 % smaller
_STARTS = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg"}


class Saved(NamedTuple):
    """What `results.jsonl` says of a leaf in a file: its suffix, and facts for the reader."""

    suffix: str
    facts: dict[str, Any]


def save_leaf(leaf: Any, path: Path) -> Saved:
    """Write one leaf to `path` with a suffix of its kind. Blocks.

    Raises `OSError` when the folder refuses it, and what pickling an object raises.
    """
    suffix, facts, write = _kind(leaf)
    _write_whole(path.with_name(path.name + suffix), write)
    return Saved(suffix, facts)


def _kind(leaf: Any) -> tuple[str, dict[str, Any], Write]:
    if isinstance(leaf, torch.Tensor):
        return _tensor(leaf)
    numpy, images = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(leaf, numpy.ndarray) and not leaf.dtype.hasobject:
        return _array(leaf)
    if images is not None and isinstance(leaf, images.Image):
        facts = {"kind": "image", "size": list(leaf.size), "mode": leaf.mode}
        return ".png", facts, lambda file: leaf.save(file, "PNG", compress_level=_PNG_LEVEL)
    if isinstance(leaf, bytes | bytearray | memoryview):
        data = bytes(leaf)
        suffix = next((name for start, name in _STARTS.items() if data.startswith(start)), ".bin")
        return suffix, {"kind": "bytes", "bytes": len(data)}, lambda file: file.write(data)
    return ".pkl", {"kind": "object", "type": _type_name(leaf)}, lambda f: pickle.dump(leaf, f, 5)


def _tensor(tensor: torch.Tensor) -> tuple[str, dict[str, Any], Write]:
    facts = {
        "kind": "tensor",
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
    }
    if tensor.dtype == torch.uint8 and tensor.layout == torch.strided:
        order = _picture_order(tuple(tensor.shape))
        if order is not None:
            return _picture(tensor.detach().numpy(), order, facts)
    return ".pt", facts, lambda file: torch.save(_alone(tensor), file)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that shares its storage with no other: torch saves whole storages."""
    if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() == tensor.nbytes:
        return tensor
    return tensor.detach().clone()


def _array(array: Any) -> tuple[str, dict[str, Any], Write]:
    import numpy

    facts = {"kind": "array", "dtype": str(array.dtype), "shape": list(array.shape)}
    order = _picture_order(array.shape) if array.dtype == numpy.uint8 else None
    if order is not None:
        return _picture(array, order, facts)
    return ".npy", facts, lambda file: numpy.save(file, array, allow_pickle=False)


def _picture_order(shape: tuple[int, ...]) -> str | None:
    """Return "HWC" or "CHW" for the shape of a picture that can be written here."""
    if len(shape) != 3 or 0 in shape or find_spec("PIL") is None or find_spec("numpy") is None:
        return None
    return "HWC" if shape[2] == 3 else "CHW" if shape[0] == 3 else None


def _picture(pixels: Any, order: str, facts: dict[str, Any]) -> tuple[str, dict[str, Any], Write]:
    from PIL import Image

    by_rows = pixels if order == "HWC" else pixels.transpose(1, 2, 0)

    def write(file: BinaryIO) -> None:
        Image.fromarray(by_rows.copy()).save(file, "PNG", compress_level=_PNG_LEVEL)

    return ".png", {**facts, "order": order}, write


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _write_whole(path: Path, write: Write) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write(file)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write a small file, whole or not at all. Raises `OSError`."""
    _write_whole(path, lambda file: file.write(text.encode()))
