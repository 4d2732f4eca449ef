"""Looking for plugins imports no torch, opens no device, and needs neither to be there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.fake_plugins import probing, run_python, write_plugin

LIST = """
import json
from omni_platforms.platform import discover
print(json.dumps([report.row() for report in discover()]))
"""
WATCH = """
import sys
opened = []
def watch(event, args):
    if event in ("open", "os.listdir", "os.scandir", "glob.glob"):
        opened.append(str(args[0]))
sys.addaudithook(watch)
"""
ASSERT_CLEAN = """
devices = [path for path in opened if path.startswith("/dev") and path != "/dev/null"]
assert not devices, devices
assert "torch" not in sys.modules and "numpy" not in sys.modules, "heavy import"
"""
DISCOVER = """
import omni_platforms
from omni_platforms.platform import discover
discover()
"""


def test_discovery_imports_no_torch_and_opens_no_device(tmp_path: Path) -> None:
    done = run_python(WATCH + DISCOVER + ASSERT_CLEAN, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("plant", ["import torch", "import glob; glob.glob('/dev/nvidia*')"])
def test_a_probe_that_does_either_would_be_seen(tmp_path: Path, plant: str) -> None:
    write_plugin(tmp_path, "bad", probing("bad", plant))
    done = run_python(WATCH + DISCOVER + ASSERT_CLEAN, tmp_path, OMNI_PROBE_TIMEOUT="60")
    assert "AssertionError" in done.stderr


def test_importing_the_package_imports_next_to_nothing() -> None:
    done = run_python(
        """
        import sys, omni_platforms
        heavy = {"torch", "numpy", "pluggy", "click", "rich", "psutil"} & set(sys.modules)
        assert not heavy, heavy
        assert set(omni_platforms.__all__) <= set(dir(omni_platforms))
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("torch", ["", "__version__ = '2.9.0'\n"])
def test_builtin_plugins_answer_without_a_usable_torch(tmp_path: Path, torch: str) -> None:
    """With no torch at all, and with one that would fail on any attribute."""
    if torch:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("")
        (tmp_path / "torch" / "version.py").write_text(torch)
        before = ""
    else:
        before = (
            "import sys, importlib.util as u; find = u.find_spec\n"
            "u.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more)\n"
        )
    done = run_python(before + LIST, tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["cuda"]["status"] == "ABSENT"
    assert rows["cpu"]["status"] == "AVAILABLE"


@pytest.mark.parametrize("package", ["omni_platforms", "omni_platforms.platform"])
def test_every_public_name_resolves_to_what_it_says(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
