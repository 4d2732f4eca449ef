"""What is installed, by whom, and that the order of installing changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.fake_plugins import clean_environment, good

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def core_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=90)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def plugin_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    info = "fake_plugin-1.0.dist-info"
    files = {
        "fake_plugin.py": good("fake"),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: fake-plugin\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[omni_platforms]\nfake = fake_plugin\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = tmp_path_factory.mktemp("plugin") / "fake_plugin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return wheel


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata_of(wheel: Path) -> str:
    (name,) = [name for name in names_in(wheel) if name.endswith("/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode()


def test_the_wheel_holds_the_packages_and_nothing_else(core_wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names_in(core_wheel)}
    packages = {top for top in tops if not top.endswith(".dist-info")}
    assert packages == {path.parent.name for path in ROOT.glob("omni_platforms*/__init__.py")}


def test_no_two_distributions_own_one_file(core_wheel: Path, plugin_wheel: Path) -> None:
    assert not set(names_in(core_wheel)) & set(names_in(plugin_wheel))


def test_the_core_never_replaces_a_vendors_torch(core_wheel: Path) -> None:
    required = re.findall(r"^Requires-Dist: (.*)$", metadata_of(core_wheel), re.MULTILINE)
    plain = [line for line in required if "extra ==" not in line]
    assert [line for line in plain if line.startswith("torch")] == ["torch>=2.7"]
    assert not any("==" in line or "<" in line for line in plain)


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

    def run(self, *arguments: str) -> str:
        # Below the environment's own folder on the path, so that its own install wins.
        dependencies = Path(sysconfig.get_paths()["purelib"])
        done = subprocess.run(
            [str(self.folder / "bin" / "omni-platforms"), *arguments],
            env=clean_environment(self._own(), dependencies),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _own(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site


@pytest.mark.parametrize("core_first", [True, False])
def test_install_order_and_uninstall_leave_the_command_whole(
    tmp_path: Path, core_wheel: Path, plugin_wheel: Path, core_first: bool
) -> None:
    environment = Environment(tmp_path / "venv")
    for wheel in [core_wheel, plugin_wheel][:: 1 if core_first else -1]:
        environment.install(wheel)
    assert "version" in environment.run("--version")
    assert "fake-plugin 1.0" in environment.run("list")
    environment.install(core_wheel, "--force-reinstall")
    assert "version" in environment.run("--version")
    environment.pip("uninstall", "-y", "fake-plugin")
    assert "version" in environment.run("--version")
    assert "fake-plugin" not in environment.run("list")
