"""Every kind of file that people have: each gets its own clear result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omni_platforms.demo import find
from omni_platforms.demo.photo import Photo, read_photo
from omni_platforms.errors import DemoError

from .conftest import picture


def read(path: Path, longest_side: int = 1600) -> Photo:
    photo = read_photo(path, longest_side)
    assert photo.pixels.dtype == np.uint8
    assert photo.pixels.shape[2:] == (3,)
    return photo


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def colours(width: int = 40, height: int = 30) -> Image.Image:
    return Image.fromarray(picture(width, height))


def test_a_plain_photograph_needs_no_note(photo: Path) -> None:
    assert np.array_equal(read(photo).pixels, picture())
    assert read(photo).notes == ()


def test_16_bit_grey(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    photo = read(saved(tmp_path / "deep.png", Image.fromarray(values)))
    assert photo.notes == ("16-bit grey scaled to 8 bits",)
    assert np.array_equal(photo.pixels[..., 0], np.rint(values / 257).astype(np.uint8))


def test_float_grey(tmp_path: Path) -> None:
    values = np.linspace(-1, 3, 32 * 32, dtype=np.float32).reshape(32, 32)
    photo = read(saved(tmp_path / "float.tif", Image.fromarray(values)))
    assert "its own range" in photo.notes[0]
    assert (photo.pixels.min(), photo.pixels.max()) == (0, 255)


def test_an_animated_gif(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), (value, 0, 0)) for value in (250, 120, 60)]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    photo = read(path)
    assert "first of 3 frames" in photo.notes
    assert photo.pixels[0, 0, 0] == 250


def test_a_cmyk_jpeg(tmp_path: Path) -> None:
    path = saved(tmp_path / "c.jpg", colours().convert("CMYK"), quality=95)
    photo = read(path)
    assert "CMYK" in photo.notes[0]
    assert abs(photo.pixels.astype(int) - picture()).mean() < 12


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_exif_rotation(tmp_path: Path, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees, clockwise
    photo = read(saved(tmp_path / f"turned{suffix}", colours(), exif=exif))
    assert photo.pixels.shape[:2] == (40, 30)
    assert photo.pixels[2, -3, 0] > 200  # the red corner, now top right
    assert photo.pixels[2, -3, 1] < 60


def test_transparency(tmp_path: Path) -> None:
    clear = colours().convert("RGBA")
    clear.putalpha(0)
    photo = read(saved(tmp_path / "rgba.png", clear))
    assert photo.notes == ("transparency put on white",)
    assert photo.pixels.min() == 255

    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([0, 0, 0, 200, 10, 10])
    photo = read(saved(tmp_path / "palette.png", palette, transparency=1))
    assert photo.notes == ("transparency put on white",)
    assert photo.pixels.min() == 255


@pytest.mark.parametrize(("mode", "note"), [("L", "grey"), ("1", "grey"), ("P", "palette")])
def test_other_modes(tmp_path: Path, mode: str, note: str) -> None:
    photo = read(saved(tmp_path / "m.png", colours().convert(mode)))
    assert note in photo.notes[0]


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_large_photograph_is_shrunk(tmp_path: Path, suffix: str) -> None:
    photo = read(saved(tmp_path / f"large{suffix}", colours(400, 300)), longest_side=100)
    assert photo.pixels.shape == (75, 100, 3)
    assert photo.notes[-1].endswith("to 100x75")


def test_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "text.png"
    path.write_text("not a picture")
    with pytest.raises(DemoError, match=r"text\.png: not a picture in a format"):
        read(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.jpg"
    path.touch()
    with pytest.raises(DemoError, match="not a picture"):
        read(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"gone\.png: no such file"):
        read(tmp_path / "gone.png")


def test_one_pixel(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="1x1 pixels are too few"):
        read(saved(tmp_path / "dot.png", Image.new("RGB", (1, 1))))


def test_an_enormous_picture_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = saved(tmp_path / "bomb.png", Image.new("1", (12000, 9000)))
    with pytest.raises(DemoError, match=r"12000x9000 pixels.*shrink it"):
        read(path)
    path = saved(tmp_path / "bigger.png", Image.new("1", (20000, 20000)))
    with pytest.raises(DemoError, match=r"bigger.*shrink it"):
        read(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".gif", ".tif", ".webp"])
def test_truncated_files(tmp_path: Path, suffix: str) -> None:
    whole = saved(tmp_path / f"whole{suffix}", colours(200, 200)).read_bytes()
    for share in (0.3, 0.6, 0.9):
        path = tmp_path / f"part{share}{suffix}"
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DemoError, match=r"part.*(damaged|not a picture)"):
            read(path)


def test_a_folder_or_a_pipe_is_no_photograph(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path, tmp_path / "pipe.png"):
        with pytest.raises(DemoError, match="not a regular file"):
            read(path)


def test_an_unreadable_file(tmp_path: Path) -> None:
    loop = tmp_path / "loop.png"
    loop.symlink_to(loop)
    with pytest.raises(DemoError, match=r"loop\.png: cannot be read \(Too many levels"):
        read(loop)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(photo: Path) -> None:
    photo.chmod(0)
    with pytest.raises(DemoError, match=r"cannot be read \(Permission denied\)"):
        read(photo)


def test_folders_give_their_pictures_in_order(tmp_path: Path, photo: Path) -> None:
    for name in ("b.JPG", "a.png", "notes.txt"):
        (tmp_path / name).touch()
    found = find.find_photos([tmp_path, photo, tmp_path])
    assert found == [find.Found(path) for path in (tmp_path / "a.png", tmp_path / "b.JPG", photo)]


def test_a_folder_without_photographs_is_an_error_of_its_own(tmp_path: Path) -> None:
    (found,) = find.find_photos([tmp_path])
    assert found.path == tmp_path
    assert f"{tmp_path}: no photographs" in str(found.error)


def test_without_the_shipped_photographs_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find, "find_spec", lambda name: None)
    with pytest.raises(DemoError, match=r"pip install 'omni-platforms\[demo\]'"):
        find.shipped_photos()
