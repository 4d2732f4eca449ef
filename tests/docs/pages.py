"""The code of the documentation: where it stands, and how it is run.

The conventions of a page, which CONTRIBUTING.md tells authors:

- a block of Python is run, with the names of the blocks before it on the page;
- one whose first line is a comment with a path, `# loop.py`, is a file: it is written
  to the page's own folder, from which blocks and workers can import it;
- `<!--- invisible-code-block: python ... --->` is run and not shown;
- `<!--- device: sim --->` runs the page on a simulated device instead of the CPU;
- `<!--- skip: next "why" --->` does not run a block, and the page says so, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sybil import Document, Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FILE = re.compile(r"# ([\w./-]+\.py)\n")
_FENCE = re.compile(r"^[ \t>]*```+\s*(?:python|\{code-block\} *python)", re.MULTILINE)
_DEVICE = re.compile(r"<!--+ device: sim -+->")
_run_python = PythonEvaluator()


def name_of(page: Path) -> str:
    """The page's path below the project's root, for the name of a test."""
    return page.relative_to(ROOT).as_posix()


def wants_a_device(page: Path) -> bool:
    """Whether its code is to run on a simulated device."""
    return _DEVICE.search(page.read_text(encoding="utf-8")) is not None


def has_code(page: Path) -> bool:
    """Whether it shows Python."""
    return _FENCE.search(page.read_text(encoding="utf-8")) is not None


def _evaluate(example: Example) -> None:
    source = str(example.parsed)
    file = _FILE.match(source)
    if file is None:
        _run_python(example)
    else:
        path = Path(file[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def parse(page: Path) -> Document:
    """Find the code of a page."""
    parsers = [CodeBlockParser(language="python", evaluator=_evaluate), SkipParser()]
    return Sybil(parsers=parsers, path=str(page.parent)).parse(page)


def run(page: Path, **names: Any) -> Iterator[str]:
    """Run the code of a page in the current folder; yield why a block was left out.

    `names` are there from the start. An error is raised where the page has it: its traceback
    names the page and the line.
    """
    document = parse(page)
    document.namespace.update(names)
    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest as reason:
            yield str(reason)


def shown_blocks(page: Path) -> int:
    """Count the blocks of Python that a reader sees, by the fences alone."""
    return len(_FENCE.findall(page.read_text(encoding="utf-8")))


def found_blocks(page: Path) -> int:
    """Count those of them that would be run, or left out with a reason."""
    document = parse(page)
    starts = (document.text[region.start :] for _, region in document.regions)
    return sum(_FENCE.match(start) is not None for start in starts)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make `folder` the current one, from which blocks and worker processes import.

    What was imported from it is forgotten at the end: pages give their files the same names.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
