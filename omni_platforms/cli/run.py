"""`omni-platforms run`: run a worker class over a file of requests."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from omni_platforms.cli.output import json_channel, json_option

_MODES = ("auto", "sync", "async")


@click.command("run")
@click.argument("worker")
@click.option(
    "--requests",
    "requests",
    type=click.File("rb"),
    required=True,
    metavar="FILE.jsonl",
    help='The requests, one JSON object a line, with an optional "id"; - is standard input.',
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the results.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes, one a device.",
)
@click.option(
    "--mode",
    type=click.Choice(_MODES),
    default="auto",
    show_default=True,
    help="sync: one request after the other. async: copies and saving go on behind the next "
    "forward. auto: async where the platform has side streams and events.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Requests at a worker at once, the one that it computes included; 2 where the mode is "
    "async. It makes auto take async.",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    metavar="N",
    help="Outputs that a worker's device may be computing or copying before its next hand-over "
    "waits.",
)
@click.option(
    "--config",
    metavar="JSON",
    help="The worker's config: a JSON value, or the name of a file that holds one.",
)
@click.option(
    "--backend",
    type=click.Choice(("process", "ray")),
    default="process",
    show_default=True,
    help="process: workers of this host. ray: workers on a Ray cluster (the extra ray).",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The Ray cluster; without it RAY_ADDRESS, one of this host, or a new one.",
)
@click.option(
    "--platform",
    "workers_platform",
    metavar="NAME",
    help="The platform of Ray's workers, where this host has another one.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="How often Ray runs a request again whose worker or node was lost.",
)
@click.option("--resume", is_flag=True, help="Run only what is missing or failed in DIR.")
@click.option(
    "--grace",
    type=click.FloatRange(0, 86400),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="What requests under way get to end after Ctrl-C.",
)
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    worker: str,
    requests: IO[bytes],
    out: Path,
    workers: int,
    mode: str,
    window: int | None,
    max_in_flight: int,
    config: str | None,
    backend: str,
    address: str | None,
    workers_platform: str | None,
    retries: int,
    resume: bool,
    grace: float,
    as_json: bool,
) -> None:
    """Run a worker class over a file of requests.

    WORKER is module:Class, where the current folder is importable, or
    path/to/file.py:Class. DIR gets results.jsonl, one line for each request the
    moment that it ends, the outputs as files, summary.json and trace.json. A
    request that fails costs only itself. The exit status is 1 when a request
    failed, a line was no request or a worker died, and 130 after Ctrl-C, which
    keeps what was finished; a second one ends at once.
    """
    if not all(worker.rpartition(":")):
        raise click.BadParameter("write module:Class", param_hint="WORKER")
    if mode == "sync" and window not in (None, 1):
        raise click.BadParameter("mode sync has one request at a worker", param_hint="--window")
    if backend != "ray" and (address or workers_platform or retries):
        raise click.UsageError("--address, --platform and --retries are for --backend ray")
    value = _config(config)
    with json_channel(as_json) as write_json, _current_folder_importable():
        from omni_platforms import current_platform
        from omni_platforms.jobs.interrupts import Interrupts
        from omni_platforms.jobs.session import Job, run_job

        name = str(getattr(requests, "name", "<stdin>"))
        job = Job(
            worker,
            requests,
            name,
            out,
            workers,
            mode,
            resume,
            value,
            grace,
            window,
            max_in_flight,
            backend,
            address,
            workers_platform,
            retries,
        )
        with Interrupts() as interrupts:
            try:
                summary = run_job(job, current_platform(), interrupts)
            except KeyboardInterrupt:  # before there was anything to stop
                ctx.exit(interrupts.exit_status or 130)
        if as_json:
            write_json(summary.document())
        else:
            for line in summary.lines():
                click.echo(line)
    if interrupts.exit_status is not None:
        ctx.exit(interrupts.exit_status)
    if not summary.ok:
        ctx.exit(1)


def _config(text: str | None) -> Any:
    """Read the config; a value that is no JSON is the name of a file."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        return json.loads(text)
    try:
        return json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(
            f"{text!r} is neither JSON nor a file that can be read ({error.strerror})",
            param_hint="--config",
        ) from error
    except ValueError as error:
        raise click.BadParameter(f"{text} holds no JSON: {error}", param_hint="--config") from error


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Put the current folder first on the path, as `python -m` does. Workers get the path."""
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before
