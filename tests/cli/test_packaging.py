"""What is installed, by whom, and that the order of installing changes nothing."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.environments import ROOT, Environment, build_wheel
from tests.fake_plugins import good


@pytest.fixture(scope="module")
def core_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


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
