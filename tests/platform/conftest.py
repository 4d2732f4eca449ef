"""A folder for fake plugins, seen by this process, and no choice left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omni_platforms.platform import selection
from tests.fake_plugins import write_plugin


@pytest.fixture(autouse=True)
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start and end without a chosen platform and without our variables."""
    selection.reset_platform()
    for variable in [key for key in os.environ if key.startswith("OMNI_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(selection._choice, "warned", set())
    yield
    selection.reset_platform()


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return a function that installs a fake plugin which this process can import."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def install(name: str, source: str | None = None, **options: str) -> Path:
        return write_plugin(folder, name, source, **options)

    yield install
    for module in set(sys.modules) - before:
        if module.startswith("fake_"):
            del sys.modules[module]
