"""What commands print: a table for people, or exactly one JSON document."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
WriteJson = Callable[[object], None]

_STDOUT = 1
_STDERR = 2


def json_option(command: Command) -> Command:
    """Add `--json`, as the parameter `as_json`."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON document on standard output, and nothing else there.",
    )(command)


@contextlib.contextmanager
def json_channel(as_json: bool) -> Iterator[WriteJson]:
    """Keep standard output for one JSON document, if `as_json`; yield what writes it.

    Everything else that anybody prints while inside, Python or a C library,
    goes to standard error. Where Python's standard output is the process's own,
    it stays so until the process ends: a C library flushes its buffer at exit,
    and an abandoned thread may still print.
    """
    if not as_json:
        yield _refuse
    elif _is_real(sys.stdout):
        yield _take_stdout_away()
    else:
        document = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield lambda value: print(_dump(value), file=document)


def _refuse(value: object) -> None:
    raise RuntimeError("a JSON document was written without --json")


def _is_real(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == _STDOUT)
    except (AttributeError, OSError, ValueError):  # none, replaced by a buffer, or closed
        return False


def _take_stdout_away() -> WriteJson:
    sys.stdout.flush()
    document = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)

    def write(value: object) -> None:
        with open(document, "w", encoding="utf-8") as stream:
            stream.write(_dump(value) + "\n")

    return write


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, default=str)


def note(message: str) -> None:
    """Print one line for people on standard error."""
    click.echo(f"omni-platforms: {message}", err=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers in aligned columns; the last column runs free."""
    lines = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
