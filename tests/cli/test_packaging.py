"""What is installed, by whom, and that the order of installing changes nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


ENTRIES = """
from importlib.metadata import entry_points
groups = ("omni_platforms", "torch.backends", "pytest11", "console_scripts")
found = [each for group in groups for each in entry_points(group=group)]
ours = sorted(f"{e.group}: {e.name} = {e.value}" for e in found if "omni" in e.value)
print("\\n".join(ours))
"""


@pytest.mark.slow
def test_entry_points_are_found_from_the_wheel_and_from_an_editable_install_alike(
    tmp_path: Path, core_wheel: Path
) -> None:
    """Needs the package index, for what builds an editable install."""
    answers = []
    for name, what in [("wheel", [str(core_wheel)]), ("editable", ["--editable", str(ROOT)])]:
        environment = Environment(tmp_path / name)
        environment.pip("install", "--no-deps", *what)
        listed = json.loads(environment.run("list", "--json"))["platforms"]
        names = [(row["name"], row["distribution"]) for row in listed]
        answers.append((names, environment.run("-c", ENTRIES, program="python").splitlines()))
    assert answers[0] == answers[1]
    names, entries = answers[0]
    assert {name for name, _ in names} == {"cuda", "rocm", "npu", "xpu", "musa", "cpu"}
    assert len(entries) == 9  # five plugins, the simulator, the suite, the audit, the command


EXTRAS = (
    *("cuda", "rocm", "npu", "xpu", "musa", "ipex"),
    *("bench", "conformance", "demo", "diffusers", "metrics", "ray", "server", "tracing"),
    "transformers",
)


def test_every_extra_is_in_the_list(core_wheel: Path) -> None:
    provided = re.findall(r"^Provides-Extra: (.*)$", metadata_of(core_wheel), re.MULTILINE)
    assert set(provided) == set(EXTRAS)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_resolves(core_wheel: Path, extra: str) -> None:
    """Asks the package index; nothing is downloaded but metadata, and nothing installed."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(
        [*command, f"{core_wheel}[{extra}]"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
