"""Fresh environments: wheels are built, installed and run away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.fake_plugins import clean_environment

ROOT = Path(__file__).resolve().parent.parent


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of `project` into the new folder `folder`."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=project, check=True, capture_output=True, timeout=90)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment that borrows this one's dependencies, but not our package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(make, check=True, timeout=60)

    def pip(self, *arguments: str) -> None:
        python = str(self.folder / "bin" / "python")
        command = [sys.executable, "-m", "pip", "--python", python, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=90)

    def install(self, wheel: Path, *options: str) -> None:
        self.pip("install", "--no-index", "--no-deps", *options, str(wheel))

    def run(self, *arguments: str, program: str = "omni-platforms", timeout: float = 60) -> str:
        """Run a program of the environment, from its folder; return what it printed."""
        # Below the environment's own folder on the path, so that its own install wins.
        dependencies = Path(sysconfig.get_paths()["purelib"])
        done = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.folder,
            env=clean_environment(self._own(), dependencies),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _own(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site
