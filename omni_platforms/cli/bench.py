"""`omni-platforms bench`: measure what handing outputs over costs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from omni_platforms.bench import BENCHMARKS
from omni_platforms.cli.output import json_channel, json_option, note

_ALL = "all"
_OVER_BUDGET = 3


@click.command("bench")
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS, _ALL]), metavar="[NAME]...")
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Measure each way this often [default: 21, or 5 with --quick].",
)
@click.option("--quick", is_flag=True, help="Measure the small cases only.")
@click.option(
    "--strict", is_flag=True, help="End with exit status 3 when a target is missed (on hardware)."
)
@click.option(
    "--from",
    "saved",
    type=click.Path(path_type=Path),
    metavar="RESULT.json",
    help="Measure nothing: show a result that --json printed.",
)
@json_option
@click.pass_context
def bench(
    ctx: click.Context,
    names: tuple[str, ...],
    rounds: int | None,
    quick: bool,
    strict: bool,
    saved: Path | None,
    as_json: bool,
) -> None:
    """Measure what handing outputs over costs here.

    NAME is submit or all, which is the default. Each way of a case is measured
    once a round, in turn with the others, and what it moved is checked; a benchmark that
    moved a wrong byte prints no number. docs/benchmarks.md says what each row means.
    The exit status is 1 when a byte was wrong, and 0 when a target was missed, but for --strict.
    """
    with json_channel(as_json) as write_json:
        from omni_platforms.bench.report import missed, print_report, read_result

        if saved is None:
            document = _measure(names, rounds, quick)
        elif names or rounds or quick:
            raise click.UsageError("--from shows a saved result; it takes no NAME and no rounds")
        else:
            document = read_result(saved)
        if as_json:
            write_json(document)
        else:
            print_report(document)
        below = missed(document)
    if strict and below:
        for line in below:
            note(f"target missed: {line}")
        ctx.exit(_OVER_BUDGET)


def _measure(names: Sequence[str], rounds: int | None, quick: bool) -> dict[str, Any]:
    from omni_platforms import current_platform
    from omni_platforms.bench.context import Bench
    from omni_platforms.bench.session import QUICK_ROUNDS, ROUNDS, run_benchmarks

    platform = current_platform()
    chosen = list(dict.fromkeys(BENCHMARKS if _ALL in names or not names else names))
    run = Bench(
        platform,
        platform.resolve_device(),
        rounds or (QUICK_ROUNDS if quick else ROUNDS),
        quick,
        progress=note,
    )
    return run_benchmarks(chosen, run)
