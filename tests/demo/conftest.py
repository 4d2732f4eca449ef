"""Photographs that the tests make themselves, and ways to run the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from omni_platforms import reset_platform, set_current_platform
from omni_platforms.cli import main
from omni_platforms.demo.noise import Pixels
from omni_platforms.platform.cpu import CpuPlatform

RunDemo = Callable[..., Result]


def picture(width: int = 40, height: int = 30) -> Pixels:
    """A bright disc on a gradient, with one different corner, so that turning it shows."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 200 // width, y * 200 // height, 80 + 0 * x], axis=2)
    pixels[(x - width / 2) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2] = 230
    pixels[: height // 4, : width // 4] = (255, 0, 0)
    return pixels.astype(np.uint8)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A small, sound photograph."""
    path = tmp_path / "photo.png"
    Image.fromarray(picture()).save(path)
    return path


@pytest.fixture
def cpu() -> Iterator[CpuPlatform]:
    """The CPU platform, chosen for the whole process."""
    platform = CpuPlatform()
    set_current_platform(platform)
    yield platform
    reset_platform()


@pytest.fixture
def run_demo_command(cpu: CpuPlatform, tmp_path: Path) -> RunDemo:
    """Run `omni-platforms demo` on the CPU, quickly, into tmp_path/"out"."""

    def run(*arguments: object) -> Result:
        quick = ["--steps", "2", "--repeat", "1", "--out", str(tmp_path / "out")]
        return CliRunner().invoke(main, ["demo", *quick, *map(str, arguments)])

    return run


@pytest.fixture
def demo_json(run_demo_command: RunDemo) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the command with --json; return its exit status and the document."""

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        result = run_demo_command("--json", *arguments)
        document: dict[str, Any] = json.loads(result.stdout)
        return result.exit_code, document

    return run
