"""Results overwrite neither an input nor each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_platforms.demo.names import OutputFolder, readable
from omni_platforms.errors import DemoError


def test_the_same_stem_twice(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, [])
    names = [folder.take(stem, ".png").name for stem in ("cat", "cat", "CAT", "dog")]
    assert names == ["cat.png", "cat-2.png", "CAT-3.png", "dog.png"]


def test_an_input_is_not_overwritten_by_any_of_its_names(tmp_path: Path) -> None:
    photo = tmp_path / "cat.png"
    photo.write_bytes(b"mine")
    (tmp_path / "dog.png").symlink_to(photo)
    folder = OutputFolder(tmp_path, [photo])
    assert folder.take("cat", ".png").name == "cat-2.png"
    assert folder.take("dog", ".png").name == "dog-2.png"


def test_an_earlier_result_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cat.png").touch()
    assert OutputFolder(tmp_path, []).take("cat", ".png").name == "cat.png"


def test_a_long_name_fits(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, [])
    path = folder.take("\N{CAT FACE}" * 200, ".png")
    folder.write(path, b"x")
    assert path.read_bytes() == b"x"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DemoError, match=r"--out .*cannot be made"):
        OutputFolder(tmp_path / "file" / "out", [])


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    with pytest.raises(DemoError, match=r"x\.png: cannot be written .* --out"):
        OutputFolder(tmp_path, []).write(tmp_path / "x.png", b"")


def test_a_name_that_is_no_text_can_be_printed() -> None:
    assert readable("a\udcff.png").encode() == b"a\\udcff.png"
