"""The demo's result for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.request import SEED, FileResult
from omni_platforms.demo.result import DemoResult
from omni_platforms.demo.spans import LANES
from omni_platforms.demo.summary import disturbed, explain

if TYPE_CHECKING:
    from rich.table import Table


def document(result: DemoResult) -> dict[str, Any]:
    """Return the result as a JSON-ready document: times in seconds, sizes in bytes.

    `runs` and what compares them are `None` when no photo could be used;
    `gain` is async requests a second divided by blocking ones.
    """
    import torch

    request, runs = result.request, result.runs
    return {
        "schema_version": 1,
        "ok": result.ok,
        "platform": {
            "name": result.platform.name,
            "device": str(result.device),
            "device_name": result.platform.device_name(result.device.index or 0),
        },
        "torch": torch.__version__,
        "settings": {
            "steps": request.steps,
            "repeat": request.repeat,
            "noise": request.noise,
            "longest_side": request.longest_side,
            "seed": SEED,
        },
        "runs": None if runs is None else {run.name: _run(run) for run in runs},
        "gain": None if runs is None else runs[1].requests_per_s / runs[0].requests_per_s,
        "comparable": None if runs is None else not disturbed(*runs),
        "identical": None if runs is None else not result.mismatches,
        "mismatches": result.mismatches,
        "summary": summary(result),
        "files": [file.as_dict() for file in result.files],
        "written": result.written,
    }


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "mode": run.mode,
        "requests": len(run.digests),
        "seconds": run.end - run.start,
        "requests_per_s": run.requests_per_s,
        "latency_median_s": run.latency_median,
        "idle_share": run.idle_share,
        "idle_measured": run.idle_measured,
        "bytes_moved": run.bytes_moved,
        "stage_median_s": {lane: run.median(lane) for lane in LANES},
    }


def summary(result: DemoResult) -> str:
    """Return the plain sentences at the end: what was gained, or what went wrong."""
    if result.runs is None:
        return "No photograph could be used, so nothing was run."
    if result.mismatches:
        count, total = len(result.mismatches), len(result.runs[0].digests)
        numbers = ", ".join(str(number + 1) for number in result.mismatches[:8])
        return (
            f"FAILED: {count} of {total} pictures of the async run are not those of the blocking "
            f"run, bit for bit (requests {numbers}{', ...' if count > 8 else ''}). The executor "
            "or the platform under it handed over wrong bytes: run omni-platforms doctor."
        )
    return f"{explain(*result.runs)} Both runs made the same pictures, bit for bit."


def print_report(result: DemoResult) -> None:
    """Print the result for people on standard output."""
    import click
    from rich.console import Console

    for file in result.files:
        click.echo(_file_line(file))
    if result.runs is not None:
        Console().print(_table(result.runs))
    click.echo(summary(result))
    for kind, path in result.written.items():
        click.echo(f"{kind}: {path}")


def _file_line(file: FileResult) -> str:
    if not file.ok:
        return f"error  {file.error}"
    parts = [f"ok     {file.path} ({file.width}x{file.height})"]
    if file.psnr_noisy is not None and file.psnr_restored is not None:
        parts.append(f"PSNR {file.psnr_noisy:.1f} -> {file.psnr_restored:.1f} dB")
    parts.extend(file.notes)
    return f"{'; '.join(parts)} -> {file.output}"


def _table(runs: tuple[RunRecord, RunRecord]) -> Table:
    from rich.table import Table

    table = Table()
    table.add_column("", no_wrap=True)
    for run in runs:
        table.add_column(run.name, justify="right", no_wrap=True)
    for label, values in _figures(runs):
        table.add_row(label, *values)
    return table


def _figures(runs: tuple[RunRecord, RunRecord]) -> list[tuple[str, list[str]]]:
    return [
        ("requests a second", [f"{run.requests_per_s:.2f}" for run in runs]),
        ("latency (median)", [f"{run.latency_median * 1e3:.1f} ms" for run in runs]),
        ("device idle between forwards", [f"{run.idle_share:.1%}" for run in runs]),
        ("copied to the host", [f"{run.bytes_moved / 1e6:.1f} MB" for run in runs]),
    ]
