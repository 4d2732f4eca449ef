"""`make docs` ends without a warning, and its pages have what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import omni_platforms
from omni_platforms.settings import SETTINGS
from tests.docs.pages import ROOT, name_of

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, made as `make docs` makes them."""
    (command,) = re.findall(r"^\t\$\(BIN\)/python (-m sphinx .*)$", makefile(), flags=re.MULTILINE)
    folder = tmp_path_factory.mktemp("site")
    *options, source, _ = command.split()
    done = subprocess.run(
        [sys.executable, *options, source, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return folder


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def page(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


@pytest.mark.xdist_group("site")
def test_a_warning_is_an_error() -> None:
    assert "--fail-on-warning" in makefile()


@pytest.mark.xdist_group("site")
def test_every_page_is_reached_from_the_first(site: Path) -> None:
    """Sphinx itself warns of a page that no table of contents has."""
    first = page(site, "index.html")
    for source in DOCS.glob("*.md"):
        if source.stem != "index":
            assert f'href="{source.stem}.html"' in first, name_of(source)


@pytest.mark.xdist_group("site")
def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = [each.read_text(encoding="utf-8") for each in (site / "api").glob("*.html")]
    described = set(re.findall(r'<dt class="sig[^>]*id="[\w.]*?(\w+)"', "".join(pages)))
    names = {name for name in omni_platforms.__all__ if not name.startswith("__")}
    assert names - described == set()


@pytest.mark.xdist_group("site")
def test_the_settings_are_all_there(site: Path) -> None:
    settings = page(site, "api/settings.html")
    for name in SETTINGS:
        assert name in settings


@pytest.mark.xdist_group("site")
def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    asked = re.compile(
        r'<(?:script|img|iframe)[^>]* src="https?:|<link[^>]*stylesheet[^>]*"https?:'
    )
    for each in site.rglob("*.html"):
        assert not asked.search(each.read_text(encoding="utf-8")), each
