"""Figures that are told again elsewhere are those of docs/performance.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

MEASURED = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
# The pages that repeat figures, up to where they speak of something else.
PAGES = ["README.md", "docs/index.md", "docs/howto/llm-steps.md"]
_FIGURE = re.compile(r"\d+(?:\.\d+)?(?: to \d+(?:\.\d+)?)? ?(?:us|ms|requests a second|%)")


def figures_of(page: Path) -> set[str]:
    return set(_FIGURE.findall(page.read_text(encoding="utf-8")))


def is_measured(figure: str) -> bool:
    """Whether all numbers of a figure stand on the page of measurements."""
    return all(
        re.search(rf"(?<![\d.]){n}(?![\d.]\d)", MEASURED) for n in re.findall(r"[\d.]+", figure)
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_on_the_page_of_measurements(page: str) -> None:
    found = figures_of(ROOT / page)
    assert found
    own = {"6.21 requests a second"}  # of the picture beside it
    assert {figure for figure in found - own if not is_measured(figure)} == set()


def test_a_figure_that_nobody_measured_would_be_seen() -> None:
    assert not is_measured("0.123 ms")
    assert is_measured("5.47 ms")
