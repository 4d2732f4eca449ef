"""Without Ray: one clear error, and nothing else of this package wants it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omni_platforms import MissingExtraError
from omni_platforms.engine.ray import RayExecutor


def test_one_clear_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'omni-platforms\[ray\]'") as caught:
        RayExecutor("nobody:Worker", platform="cpu")
    assert isinstance(caught.value, ImportError)


def test_core_imports_nothing_of_it_and_agents_import_no_torch() -> None:
    """Neither the executors, nor the public names, nor the command line, nor the agent's module."""
    code = """if True:
        import importlib, pkgutil, sys
        sys.modules["ray"] = None  # any import of it fails
        import omni_platforms.engine.ray.agent
        assert "torch" not in sys.modules, "an agent is small"
        for package in ("omni_platforms.engine", "omni_platforms.jobs", "omni_platforms.cli"):
            found = importlib.import_module(package)
            for module in pkgutil.walk_packages(found.__path__, package + "."):
                importlib.import_module(module.name)
        import omni_platforms
        for name in omni_platforms.__all__:
            getattr(omni_platforms, name)
        from omni_platforms import MultiprocExecutor
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
