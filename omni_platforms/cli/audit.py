"""`omni-platforms audit`: run a program and show what makes its host wait."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from omni_platforms.cli.output import json_channel, json_option, note, print_table

if TYPE_CHECKING:
    from omni_platforms.audit.compare import Comparison
    from omni_platforms.audit.program import Program
    from omni_platforms.audit.report import AuditReport, SiteReport

OVER_BUDGET = 3


@click.command("audit")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "module", metavar="MODULE", help="Run a module instead of a script.")
@click.option("--max-syncs", type=click.IntRange(0), metavar="N", help="Exit with 3 beyond this.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Audit the first N steps only.")
@click.option(
    "--step-function",
    metavar="PKG.MOD:FN",
    help="Each call is a step. __main__:FN is a function of the program itself.",
)
@click.option(
    "--step-module",
    metavar="CLASS",
    help="A step begins at each forward of a torch module of this class.",
)
@click.option(
    "--detail",
    type=click.Choice(["counts", "full"]),
    default="full",
    show_default=True,
    help="full also sees copies inside operators, and asks the vendor's sync-debug mode.",
)
@click.option(
    "--profile", is_flag=True, help="Run torch's profiler too: tells the device's idle time."
)
@click.option("--cpu-as-device", is_flag=True, help="Take CPU tensors as device tensors.")
@click.option(
    "--capturable", is_flag=True, help="Show what keeps a step from being a device graph."
)
@click.option("--baseline", metavar="A.JSON", help="Compare with this run, made with --json.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Write the report as a page with the source."
)
@json_option
@click.pass_context
def audit(ctx: click.Context, /, **options: Any) -> None:
    """Run a program and show what makes its host wait.

    PROGRAM is a script; its own arguments come after --. Steps are marked by
    omni_platforms.audit.step(), or found by one of the two options. Without an
    accelerator CPU tensors are taken as device tensors: it shows what would
    wait. Exit status: 0, 1 where the program failed, outputs differ from the
    baseline's or a step is not capturable, 2 wrong usage, 3 over --max-syncs.
    """
    with json_channel(options["as_json"]) as write_json:
        program = _program(options)
        # Imported here: they import torch, which takes seconds.
        from omni_platforms.audit.compare import compare, load

        before = None if options["baseline"] is None else load(options["baseline"])
        report, failed = _run(program, options)
        comparison = None if before is None else compare(before, report)
        if options["html_file"] is not None:
            _write_html(report, options["html_file"])
        over = options["max_syncs"] is not None and report.count > options["max_syncs"]
        if options["as_json"]:
            write_json(_document(report, comparison, options, over))
        else:
            _print(report, comparison, options, over)
    found = failed or (options["capturable"] and bool(report.capture_blockers()))
    found = found or (comparison is not None and comparison.outputs == "different")
    ctx.exit(OVER_BUDGET if over else int(found))


def _program(options: dict[str, Any]) -> Program:
    from omni_platforms.audit.program import Program

    words: tuple[str, ...] = options["program"]
    if options["step_function"] and options["step_module"]:
        raise click.UsageError("--step-function and --step-module exclude each other")
    if options["module"] is not None:
        return Program(options["module"], words, is_module=True)
    if not words:
        raise click.UsageError("name a script, or a module with -m")
    return Program(words[0], words[1:])


def _run(program: Program, options: dict[str, Any]) -> tuple[AuditReport, bool]:
    """Run the program under an audit; return the report, and whether the program failed."""
    from omni_platforms.audit.session import SyncAudit
    from omni_platforms.errors import AuditError

    audit = SyncAudit(
        detail=options["detail"],
        cpu_as_device=True if options["cpu_as_device"] else None,
        profile=options["profile"],
        max_steps=options["steps"],
    )
    inside = None
    if options["step_function"] and options["step_function"].startswith("__main__:"):
        inside = options["step_function"].partition(":")[2]
    failed = False
    with program.prepared(), _steps(options), audit:
        try:
            program.run(inside)
        except SystemExit as end:
            failed = end.code not in (None, 0)
        except AuditError:
            raise
        except Exception:  # noqa: BLE001 - the program's own; shown, and the audit goes on
            traceback.print_exc()
            failed = True
    report = audit.report()
    asked = options["step_function"] or options["step_module"]
    if asked and not report.steps:
        note(f"no step was seen: the program never called {asked}")
        failed = True
    return report, failed


@contextlib.contextmanager
def _steps(options: dict[str, Any]) -> Iterator[None]:
    from omni_platforms.audit.steps import function_is_step, module_is_step

    function = options["step_function"]
    if function and not function.startswith("__main__:"):
        with function_is_step(function):
            yield
    elif options["step_module"]:
        with module_is_step(options["step_module"]):
            yield
    else:
        yield


def _write_html(report: AuditReport, path: str) -> None:
    from omni_platforms.audit.html import page

    with open(path, "w", encoding="utf-8") as file:
        file.write(page(report))
    note(f"wrote {path}")


def _document(
    report: AuditReport, comparison: Comparison | None, options: dict[str, Any], over: bool
) -> dict[str, Any]:
    document = report.to_dict()
    document["max_syncs"], document["over_budget"] = options["max_syncs"], over
    if options["capturable"]:
        blockers = report.capture_blockers()
        document["capturable"] = not blockers
        document["capture_blockers"] = [f"{site.where} {site.kind}" for site in blockers]
    if comparison is not None:
        document["comparison"] = comparison.to_dict()
    return document


# For people ---------------------------------------------------------------------


def _print(
    report: AuditReport, comparison: Comparison | None, options: dict[str, Any], over: bool
) -> None:
    from omni_platforms.audit.html import headline

    sys.stdout.flush()
    click.echo(headline(report))
    _print_sites(report.sites)
    for site in report.allowed:
        click.echo(f"allowed  {site.where} {site.kind} x{site.count}: {site.allowed}")
    for line in report.notes:
        click.echo(f"note: {line}")
    click.echo(f"covered: {', '.join(report.covered_kinds)}")
    if options["capturable"]:
        _print_capturable(report)
    if comparison is not None:
        _print_comparison(comparison)
    if over:
        click.echo(
            f"over the budget: {report.count} waits, and --max-syncs is {options['max_syncs']}"
        )


def _print_sites(sites: list[SiteReport]) -> None:
    from omni_platforms.audit.html import per_step, seconds

    if not sites:
        return
    headers = ("A STEP", "COUNT", "BLOCKED", "IDLE", "KIND", "WHERE")
    rows = [
        (
            per_step(site),
            site.count,
            seconds(site.blocked_s),
            seconds(site.idle_s),
            site.kind,
            f"{site.where}  {site.source}",
        )
        for site in sites
    ]
    print_table(headers, rows)
    click.echo("what to do:")
    for site in sites:
        value = f" = {', '.join(map(str, site.value))}" if site.hoistable else ""
        hoistable = f"hoistable{value}: " if site.hoistable else ""
        click.echo(f"  {site.where} {hoistable}{site.suggestion}")


def _print_capturable(report: AuditReport) -> None:
    blockers = report.capture_blockers()
    if not blockers:
        click.echo("capturable: nothing of the covered kinds stands in the way of a device graph")
        return
    click.echo(f"not capturable as a device graph; in the way ({len(blockers)}):")
    for site in blockers:
        click.echo(f"  {site.where} {site.kind}: {site.source}")


def _print_comparison(comparison: Comparison) -> None:
    from omni_platforms.audit.html import seconds

    if not comparison.comparable:
        click.echo("warning: platform, mode, detail or number of steps differ from the baseline's")
    click.echo("against the baseline:")
    click.echo(f"  waits        {comparison.count.before} -> {comparison.count.after}")
    for kind, change in comparison.kinds.items():
        click.echo(f"    {kind}  {change.before:g} -> {change.after:g}")
    for name, change in (
        ("blocked", comparison.blocked_s),
        ("device idle", comparison.idle_s),
        ("wall", comparison.wall_s),
    ):
        click.echo(f"  {name:11}  {seconds(change.before)} -> {seconds(change.after)}")
    median, low, high = comparison.step_median_s, comparison.step_p10_s, comparison.step_p90_s
    click.echo(
        f"  a step       {seconds(median.before)} ({seconds(low.before)} to {seconds(high.before)})"
        f" -> {seconds(median.after)} ({seconds(low.after)} to {seconds(high.after)}), median and "
        f"10th to 90th percentile: {comparison.step_time}"
    )
    click.echo(f"  outputs      {comparison.outputs}")
