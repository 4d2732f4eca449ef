"""`omni-platforms top`: what running executors have in hand."""

from __future__ import annotations

import contextlib
import time

import click

from omni_platforms.cli.output import json_channel, json_option, note


@click.command("top")
@click.option("--once", is_flag=True, help="Look twice, an interval apart, and print the table.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long between two looks; rates are of that time.",
)
@json_option
@click.pass_context
def top(ctx: click.Context, once: bool, interval: float, as_json: bool) -> None:
    """Show what running executors have in hand.

    Sees the processes of this user that were started with OMNI_EXPOSE=1, and their workers. Ctrl-C
    ends it. With --once, with --json or into a pipe it prints once; the exit status is then 1 when
    there is nothing to see.
    """
    with json_channel(as_json) as write_json:
        from rich.console import Console

        from omni_platforms.observe import places
        from omni_platforms.observe.top import HINT, Looker, show_live, table_of

        looker, console = Looker(places.folder()), Console()
        if console.is_terminal and not (once or as_json):
            with contextlib.suppress(KeyboardInterrupt):
                show_live(looker, interval, console)
            return
        looker.look()
        time.sleep(interval)
        rows = looker.look()
        if as_json:
            write_json({"interval": interval, "rows": [row.document() for row in rows]})
        elif rows:
            console.print(table_of(rows))
    if not rows:
        note(HINT)
        ctx.exit(1)
