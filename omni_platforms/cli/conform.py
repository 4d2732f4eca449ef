"""`omni-platforms conform`: run the conformance suite over one platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omni_platforms.cli.output import json_channel, json_option, note, print_table

if TYPE_CHECKING:
    from omni_platforms.conformance.record import Report


@click.command("conform")
@click.argument("name")
@click.option(
    "--report",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write conformance.json, .md, .xml (JUnit) and .html to this folder.",
)
@click.option(
    "--tier", "tiers", metavar="TIERS", help="Run only these tiers: T2, or T0,T1, or T0-T3."
)
@click.option("--require-device", is_flag=True, help="Fail where there is no device.")
@click.option("--simulate", is_flag=True, help="Run on a simulated device, and say so.")
@click.option("--keep-going", is_flag=True, help="Run later tiers although one failed.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86400),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="End the run after this time; it has a report all the same.",
)
@json_option
@click.pass_context
def conform(
    ctx: click.Context,
    name: str,
    folder: Path | None,
    tiers: str | None,
    require_device: bool,
    simulate: bool,
    keep_going: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Run the conformance suite over one platform.

    NAME is a platform that `omni-platforms list` shows. Without --simulate (or
    OMNI_SIMULATE in the environment) the suite runs on the hardware. The exit
    status is 0 when nothing failed and the tier that the platform declares is
    certified, otherwise 1.
    """
    with json_channel(as_json) as write_json:
        from omni_platforms.conformance.run import Request, WrongUsageError, run_suite
        from omni_platforms.conformance.write import make_folder, write_report

        device = _device_to_simulate(name) if simulate else None
        _check(name, device, tiers)
        if folder is not None:
            make_folder(folder)  # now, not when the run is over
        request = Request(name, tiers, require_device, keep_going, device, timeout)
        try:
            report = run_suite(request)
        except WrongUsageError:
            ctx.exit(2)
        files = [] if folder is None else write_report(report, folder)
        if as_json:
            write_json(report.to_json())
        else:
            _print(report)
        for file in files:
            note(f"wrote {file}")
    if not report.ok:
        ctx.exit(1)


def _device_to_simulate(name: str) -> str:
    from omni_platforms.conformance.simulated import device_for
    from omni_platforms.errors import ConformanceSetupError

    try:
        return device_for(name)
    except ConformanceSetupError as error:
        raise click.UsageError(str(error)) from error


def _check(name: str, device: str | None, tiers: str | None) -> None:
    """Refuse what the command line says wrongly before anything is started."""
    from difflib import get_close_matches

    from omni_platforms import settings
    from omni_platforms.conformance.record import parse_tiers
    from omni_platforms.platform.discovery import known_names

    try:
        parse_tiers(tiers)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--tier'") from error
    simulated = device or settings.read("OMNI_SIMULATE")
    known = sorted({*known_names(), *filter(None, [simulated])})
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"no plugin offers {name!r}. Known names: {', '.join(known)}.{hint}")


def _print(report: Report) -> None:
    from omni_platforms.conformance.record import Outcome
    from omni_platforms.conformance.summary import headline, summaries, troubles

    rows = [
        (each.tier, each.verdict, *(each.counts.get(o, "") for o in Outcome), each.title)
        for each in summaries(report)
    ]
    print_table(("TIER", "VERDICT", *(o.value.upper() for o in Outcome), ""), rows)
    for row in troubles(report):
        click.echo(f"\n{row.outcome.value}: {row.tier} {row.id}")
        lines = {"contract: ": row.contract, "reason: ": row.reason, "-> ": row.remedy}
        for label, text in lines.items():
            if text:
                click.echo(f"  {label}{text}")
    click.echo(f"\n{headline(report)}")
