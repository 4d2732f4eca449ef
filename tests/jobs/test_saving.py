"""Outputs as files: every dtype bit for bit, pictures as pictures, and no half file."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from omni_platforms.jobs import leaves
from omni_platforms.jobs.saving import OutputSaver


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    name: str
    data: Any


@pytest.fixture
def saver(tmp_path: Path) -> OutputSaver:
    (tmp_path / "outputs").mkdir()
    return OutputSaver(tmp_path / "outputs", {"r": "r"})


DTYPES = [
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.float64,
    torch.complex64,
    torch.bool,
    torch.int8,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_dtype_comes_back_bit_for_bit(
    saver: OutputSaver, tmp_path: Path, dtype: torch.dtype
) -> None:
    tensor = torch.arange(-8, 16).reshape(4, 6).to(dtype).t()
    found, (file,) = saver.save("r", tensor)
    assert found["dtype"] == str(dtype).removeprefix("torch.")
    again = torch.load(tmp_path / file, weights_only=True)
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    as_bytes = (t.contiguous().view(torch.uint8) for t in (again, tensor))
    assert torch.equal(*as_bytes)


@pytest.mark.parametrize("shape", [(5, 7, 3), (3, 5, 7)])
@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_a_picture_is_a_png_with_the_same_bits(
    saver: OutputSaver, tmp_path: Path, shape: tuple[int, ...], kind: str
) -> None:
    pixels = np.arange(105, dtype=np.uint8).reshape(shape)
    found, (file,) = saver.save("r", torch.from_numpy(pixels) if kind == "tensor" else pixels)
    assert file == "outputs/r.png"
    written = np.array(Image.open(tmp_path / file))
    if found["order"] == "CHW":
        written = written.transpose(2, 0, 1)
    assert np.array_equal(written, pixels)


@pytest.mark.parametrize(
    "leaf", [torch.zeros(5, 7, 4, dtype=torch.uint8), torch.zeros(0, 7, 3, dtype=torch.uint8)]
)
def test_what_only_resembles_a_picture_is_a_tensor(saver: OutputSaver, leaf: torch.Tensor) -> None:
    assert saver.save("r", leaf)[1] == ["outputs/r.pt"]


@pytest.mark.parametrize("missing", ["PIL", "numpy"])
def test_without_pillow_or_numpy_a_picture_is_a_tensor(
    saver: OutputSaver, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(leaves, "find_spec", lambda name: None if name == missing else name)
    assert saver.save("r", torch.zeros(5, 7, 3, dtype=torch.uint8))[1] == ["outputs/r.pt"]


def test_a_small_view_does_not_bring_its_storage(saver: OutputSaver, tmp_path: Path) -> None:
    _, (file,) = saver.save("r", torch.zeros(1000, 1000)[:, :1])
    assert (tmp_path / file).stat().st_size < 20_000


def test_a_nest_keeps_its_shape(saver: OutputSaver, tmp_path: Path) -> None:
    array, text = np.arange(3.0), "ok"
    output = {
        "pair": Pair(np.float32(1.5), [None, True, float("inf")]),
        "record": Record("x", array),
        "again": array,
        "text": text,
        3: b"\x89PNG\r\n\x1a\n....",
        "raw": b"abc",
        "object": {1, 2},
        "pillow": Image.new("L", (2, 2)),
    }
    found, files = saver.save("r", output)
    assert json.loads(json.dumps(found)) == found
    assert found["pair"] == {"left": 1.5, "right": [None, True, "inf"]}
    assert found["record"]["data"] == found["again"]  # saved once
    assert [Path(file).name for file in files] == [
        "r@record.data.npy",
        "r@3.png",
        "r@raw.bin",
        "r@object.pkl",
        "r@pillow.png",
    ]
    assert np.array_equal(np.load(tmp_path / files[0]), array)
    assert (tmp_path / files[2]).read_bytes() == b"abc"
    assert pickle.loads((tmp_path / files[3]).read_bytes()) == {1, 2}


def test_plain_values_need_no_file(saver: OutputSaver) -> None:
    assert saver.save("r", "text") == ("text", [])
    assert saver.save("r", [1, (2, 3)]) == ([1, [2, 3]], [])


def test_what_cannot_be_saved_is_an_error_and_leaves_no_half_file(
    saver: OutputSaver, tmp_path: Path
) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        saver.save("r", {"a": lambda: 0})
    with pytest.raises(ValueError, match="4300"):
        saver.save("r", 10**5000)
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="holds itself"):
        saver.save("r", cycle)
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_file_has_its_name_only_when_it_is_whole(
    saver: OutputSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def save(tensor: torch.Tensor, file: Any) -> None:
        file.write(b"half")
        seen.append(sorted(path.name for path in (tmp_path / "outputs").iterdir()))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(OSError, match="No space"):
        saver.save("r", torch.zeros(3))
    assert seen == [[".r.pt.part"]]
    assert list((tmp_path / "outputs").iterdir()) == []
