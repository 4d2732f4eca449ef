"""`omni-platforms bench`: measure what handing outputs over costs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omni_platforms.bench import BENCHMARKS, MODELS
from omni_platforms.cli.output import WriteJson, json_channel, json_option, note

if TYPE_CHECKING:
    from omni_platforms.bench.context import Bench

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
@click.option(
    "--model",
    type=click.Choice(list(MODELS)),
    help="Run a real pipeline instead, small and with random weights, or beside each NAME; needs "
    "the extra of that name.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the result's pictures as FILE.png, and with its tables as FILE.html; needs the "
    "extra bench.",
)
@click.option(
    "--recommend",
    is_flag=True,
    help="Measure this machine for some seconds and say which settings to use.",
)
@click.option(
    "--forward-ms",
    type=click.FloatRange(0, min_open=True),
    metavar="MS",
    help="With --recommend or pipeline: how long your forward takes.",
)
@click.option(
    "--output-bytes",
    type=click.IntRange(1),
    metavar="N",
    help="With --recommend or pipeline: how large your outputs are.",
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
    model: str | None,
    plot: Path | None,
    recommend: bool,
    forward_ms: float | None,
    output_bytes: int | None,
    as_json: bool,
) -> None:
    """Measure what handing outputs over costs here.

    NAME is submit, handoff, pipeline, tokens or all, which is the default. Each way
    of a case is measured once a round, in turn with the others, and what it moved is
    checked; a benchmark that moved a wrong byte prints no number. docs/benchmarks.md says
    what each row means.
    The exit status is 1 when a byte was wrong, and 0 when a target was missed, but for --strict.
    """
    if recommend and (names or model or saved is not None or plot is not None):
        raise click.UsageError("--recommend takes no NAME, no --model, no --from and no --plot")
    own = (forward_ms, output_bytes) != (None, None)
    if own and not recommend and (saved is not None or not {"pipeline", _ALL} & {*names}):
        raise click.UsageError("--forward-ms and --output-bytes go with --recommend or pipeline")
    start = partial(_run, rounds, quick, forward_ms, output_bytes)
    with json_channel(as_json) as write_json:
        if recommend:
            _recommend(start(), write_json if as_json else None)
            return
        from omni_platforms.bench.plot import check_plot, write_plot
        from omni_platforms.bench.report import missed, print_report, read_result

        if plot is not None:
            check_plot(plot)
        if saved is None:
            document = _measure(names, model, start())
        elif names or model or rounds or quick:
            raise click.UsageError("--from shows a saved result; it takes no NAME and no rounds")
        else:
            document = read_result(saved)
        if as_json:
            write_json(document)
        else:
            print_report(document)
        for file in () if plot is None else write_plot(document, plot):
            note(f"wrote {file}")
        below = missed(document)
    if strict and below:
        for line in below:
            note(f"target missed: {line}")
        ctx.exit(_OVER_BUDGET)


def _recommend(run: Bench, show: WriteJson | None) -> None:
    from omni_platforms.bench.recommend import lines, recommend

    document = recommend(run)
    if show is not None:
        show(document)
        return
    for line in lines(document):
        click.echo(line)


def _measure(names: Sequence[str], model: str | None, run: Bench) -> dict[str, Any]:
    from omni_platforms.bench.session import run_benchmarks

    everything = _ALL in names or (not names and model is None)
    chosen = BENCHMARKS if everything else dict.fromkeys(names)
    # The model first: a missing extra is then said before anything is measured.
    return run_benchmarks([*([model] if model else []), *chosen], run)


def _run(
    rounds: int | None, quick: bool, forward_ms: float | None, output_bytes: int | None
) -> Bench:
    from omni_platforms import current_platform
    from omni_platforms.bench.context import Bench
    from omni_platforms.bench.session import QUICK_ROUNDS, ROUNDS

    platform = current_platform()
    return Bench(
        platform,
        platform.resolve_device(),
        rounds or (QUICK_ROUNDS if quick else ROUNDS),
        quick,
        progress=note,
        forward_s=None if forward_ms is None else forward_ms / 1e3,
        output_bytes=None if output_bytes is None else -(-output_bytes // 4) * 4,
    )
