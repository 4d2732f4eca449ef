"""`omni-platforms diff`: compare two conformance reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omni_platforms.cli.output import json_channel, json_option, print_table

if TYPE_CHECKING:
    from omni_platforms.conformance.compare import Comparison

_REPORT = click.Path(path_type=Path)


@click.command("diff")
@click.argument("before", type=_REPORT)
@click.argument("after", type=_REPORT)
@json_option
@click.pass_context
def diff(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Compare two conformance reports.

    BEFORE and AFTER are conformance.json files, or the folders that hold them.
    The exit status is 1 when a test got worse or the certified tier is lower, and
    also when a file is no report.
    """
    with json_channel(as_json) as write_json:
        from omni_platforms.conformance.compare import compare
        from omni_platforms.conformance.read import read_report

        found = compare(read_report(before), read_report(after))
        if as_json:
            write_json(found.to_json())
        else:
            _print(found)
    if found.worse:
        ctx.exit(1)


def _print(found: Comparison) -> None:
    from omni_platforms.conformance.summary import headline

    click.echo(f"before: {headline(found.before)}")
    click.echo(f"after:  {headline(found.after)}")
    for name, (old, new) in found.notes.items():
        click.echo(f"{name}: {old} -> {new}")
    if not found.changes:
        click.echo("no test ended differently")
        return
    rows = [
        (each.kind, each.tier, each.id, _word(each.before), _word(each.after), each.reason)
        for each in found.changes
    ]
    print_table(("", "TIER", "TEST", "BEFORE", "AFTER", "REASON"), rows)


def _word(outcome: object) -> str:
    return getattr(outcome, "value", "-")
