"""The command: exit status, what it prints and what it writes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omni_platforms.demo import async_run, find
from omni_platforms.demo.pack import encode_png

from .conftest import RunDemo, picture

DemoJson = Callable[..., tuple[int, dict[str, Any]]]


def test_a_sound_photograph(run_demo_command: RunDemo, photo: Path, tmp_path: Path) -> None:
    result = run_demo_command(photo)
    assert result.exit_code == 0, result.output
    assert "requests a second" in result.stdout
    assert "bit for bit" in result.stdout
    assert "blocking run" in result.stderr
    assert "blocking run" not in result.stdout
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "before-after.png",
        "photo-restored.png",
        "timeline.png",
        "trace.json",
    ]
    assert Image.open(out / "photo-restored.png").size == (40, 30)


def test_json_is_one_document_and_has_the_figures(demo_json: DemoJson, photo: Path) -> None:
    status, document = demo_json(photo, "--repeat", 3)
    assert status == 0
    assert document["identical"] is True
    assert document["platform"]["name"] == "cpu"
    for name in ("blocking", "async"):
        run = document["runs"][name]
        assert run["requests"] == 3
        assert run["requests_per_s"] == pytest.approx(3 / run["seconds"])
        assert 0 <= run["idle_share"] < 1
        assert 0 < run["latency_median_s"] <= run["seconds"]
        assert run["idle_measured"].startswith("host clock")
    assert document["runs"]["async"]["bytes_moved"] == 3 * 40 * 30 * 3
    assert document["runs"]["blocking"]["bytes_moved"] == 0  # it is on the host already
    (file,) = document["files"]
    assert file["status"] == "ok"
    assert file["psnr_restored"] > file["psnr_noisy"]
    assert Path(file["output"]).is_file()
    assert set(document["written"]) == {"sheet", "timeline", "trace"}


def test_the_pictures_written_are_those_of_the_model(
    demo_json: DemoJson, photo: Path, tmp_path: Path
) -> None:
    import torch

    from omni_platforms.demo.pack import to_uint8
    from omni_platforms.demo.restore import Restorer

    demo_json(photo, "--noise", 0)
    inputs = torch.from_numpy(picture()).permute(2, 0, 1)[None]
    expected = to_uint8(Restorer(torch.device("cpu"), steps=2, noise=0)(inputs)).numpy()
    written = np.array(Image.open(tmp_path / "out" / "photo-restored.png"))
    assert np.array_equal(written, expected)


def test_without_noise_there_is_no_psnr(demo_json: DemoJson, photo: Path) -> None:
    status, document = demo_json(photo, "--noise", 0)
    assert status == 0
    assert document["files"][0]["psnr_noisy"] is None


def test_a_wrong_byte_in_one_picture_is_found(
    monkeypatch: pytest.MonkeyPatch, demo_json: DemoJson, photo: Path
) -> None:
    calls = []

    def corrupt(pixels: Any) -> bytes:
        calls.append(pixels)
        if len(calls) == 3:  # the first call is the warm-up
            pixels[5, 7, 1] ^= 1
        return encode_png(pixels)

    monkeypatch.setattr(async_run, "encode_png", corrupt)
    status, document = demo_json(photo, "--repeat", 4)
    assert status == 1
    assert document["identical"] is False
    assert document["mismatches"] == [1]
    assert "FAILED: 1 of 4" in document["summary"]


def test_a_bad_file_does_not_stop_the_others(
    demo_json: DemoJson, photo: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_text("no")
    (tmp_path / "none").mkdir()
    arguments = [tmp_path / "bad.png", photo, tmp_path / "gone.jpg", tmp_path / "none"]
    status, document = demo_json(*arguments)
    assert status == 1
    assert [file["status"] for file in document["files"]] == ["error", "ok", "error", "error"]
    assert all(file["error"] for file in document["files"] if file["status"] == "error")
    assert document["files"][3]["path"] == str(tmp_path / "none")
    assert Path(document["files"][1]["output"]).is_file()


def test_only_bad_files(run_demo_command: RunDemo, tmp_path: Path) -> None:
    result = run_demo_command(tmp_path / "gone[red].png")
    assert result.exit_code == 1
    assert "gone[red].png: no such file" in result.stdout
    assert "nothing was run" in result.stdout


def test_two_files_of_one_name(demo_json: DemoJson, photo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "photo.jpg"
    other.parent.mkdir()
    Image.new("RGB", (32, 32), "blue").save(other)
    status, document = demo_json(photo, other)
    assert status == 0
    sizes = [Image.open(file["output"]).size for file in document["files"]]
    assert sizes == [(40, 30), (32, 32)]


def test_inputs_in_the_output_folder_stay_as_they_are(
    demo_json: DemoJson, photo: Path, tmp_path: Path
) -> None:
    for name in ("before-after.png", "photo-restored.png", "timeline.png"):
        Image.new("RGB", (16, 16), "green").save(tmp_path / name)

    def digests() -> dict[str, str]:
        files = [path for path in tmp_path.iterdir() if path.is_file()]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = digests()
    status, document = demo_json(tmp_path, "--out", tmp_path)
    assert status == 0
    assert len(document["files"]) == 4
    assert before.items() <= digests().items()
    assert len(digests()) == 4 + 4 + 3


def test_without_arguments_the_shipped_photographs_are_used(
    monkeypatch: pytest.MonkeyPatch, demo_json: DemoJson
) -> None:
    monkeypatch.setattr(find, "_SHIPPED", ("chelsea.png",))
    status, document = demo_json()
    assert status == 0
    assert [Path(file["path"]).name for file in document["files"]] == ["chelsea.png"]


@pytest.mark.parametrize(
    "arguments", [("--steps", 0), ("--noise", -1), ("--repeat", "x"), ("--no-such-option",)]
)
def test_wrong_usage(run_demo_command: RunDemo, arguments: tuple[object, ...]) -> None:
    assert run_demo_command(*arguments).exit_code == 2


def test_an_output_folder_that_is_a_file(run_demo_command: RunDemo, photo: Path) -> None:
    assert run_demo_command(photo, "--out", photo).exit_code == 2


def test_importing_the_command_is_cheap() -> None:
    code = (
        "import sys, omni_platforms.cli.demo\n"
        "heavy = {'torch', 'PIL', 'numpy', 'matplotlib', 'rich', 'skimage'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
