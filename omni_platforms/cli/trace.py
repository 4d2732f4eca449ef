"""`omni-platforms trace`: when executors, their threads and their devices did what."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from omni_platforms.cli.output import json_channel, json_option, note


@click.command("trace", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("trace.json"),
    show_default=True,
    help="The file for the trace.",
)
@click.option(
    "--events",
    type=click.IntRange(1, 1 << 24),
    default=65_536,
    show_default=True,
    help="How many events each process keeps, of 256 bytes; the last ones are kept.",
)
@click.option(
    "--merge",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run nothing: merge what processes recorded in this folder (OMNI_TRACE).",
)
@click.option(
    "--attach",
    type=click.IntRange(1),
    metavar="PID",
    help="Run nothing: record this process and its workers, if they are exposed (OMNI_EXPOSE).",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5.0,
    show_default=True,
    help="How long to record with --attach; Ctrl-C ends it earlier.",
)
@json_option
@click.pass_context
def trace(
    ctx: click.Context,
    command: tuple[str, ...],
    out: Path,
    events: int,
    merge: Path | None,
    attach: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Run a program and write a trace of its executors.

    Write COMMAND behind two hyphens: omni-platforms trace -- python serve.py --port 80. Its
    child processes are traced, too. ui.perfetto.dev opens the file. The exit status is the
    command's, or 1 when nothing was recorded.
    """
    if [bool(command), merge is not None, attach is not None].count(True) != 1:
        raise click.UsageError("say what to run, behind --, or whom to --attach to, or --merge")
    status = 0
    with json_channel(as_json) as write_json, contextlib.ExitStack() as cleaning:
        folder = merge
        if folder is None:
            folder = cleaning.enter_context(_private_folder())
            if attach is None:
                status = _run(command, folder, events, as_json)
            else:
                _record(attach, seconds, folder, events)
        summary = _write(folder, out)
        if as_json:
            write_json({**summary, "status": status})
    ctx.exit(status or (1 if not summary["spans"] else 0))


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="omni-trace-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(command: tuple[str, ...], folder: Path, events: int, quiet: bool) -> int:
    from omni_platforms.observe.traced import run_traced

    try:
        return run_traced(command, folder, events, quiet)
    except OSError as error:
        raise click.UsageError(f"{command[0]!r} cannot be run: {error.strerror}") from error


def _record(pid: int, seconds: float, folder: Path, events: int) -> None:
    from omni_platforms.observe.attaching import record_process

    for problem in record_process(pid, seconds, folder, events):
        note(problem)


def _write(folder: Path, out: Path) -> dict[str, Any]:
    """Write the trace, say what it has, and return that."""
    from omni_platforms.errors import ObserveError
    from omni_platforms.observe.merge import merge

    merged = merge(folder)
    if not merged.spans:
        note("error: nothing was recorded: no executor did anything")
    try:
        out.write_text(json.dumps(merged.trace), encoding="utf-8")
    except OSError as error:
        raise ObserveError(f"{out} cannot be written: {error.strerror}") from error
    if merged.lost:
        note(f"{merged.lost} older events were overwritten: keep more with --events")
    if merged.clocks > 1:
        note(f"these are of {merged.clocks} hosts, or starts of one: their clocks do not agree")
    if merged.damaged or merged.unreadable:
        note(f"{merged.damaged} events and {len(merged.unreadable)} files cannot be read")
    if merged.spans:
        note(
            f"{out}: {merged.spans} spans of {merged.processes} processes over "
            f"{merged.seconds:.3f} s; open it at https://ui.perfetto.dev"
        )
    return {
        "trace": str(out),
        "spans": merged.spans,
        "processes": merged.processes,
        "seconds": merged.seconds,
        "lost": merged.lost,
        "damaged": merged.damaged,
        "unreadable": merged.unreadable,
    }
