"""The command line: one module a command, imported when that command is run.

Asking for help therefore imports no command, no plugin and no torch. Exit
status: 0 success, 1 a failure that was found, 2 wrong usage, 3 over a
budget.
"""

from __future__ import annotations

import click

from omni_platforms import __version__
from omni_platforms.cli.lazy_group import LazyCommand, LazyGroup

_COMMANDS = (
    LazyCommand(
        "list", "omni_platforms.cli.list:list_platforms", "Show every plugin and how it stands."
    ),
    LazyCommand("doctor", "omni_platforms.cli.doctor:doctor", "Try the platform end to end."),
    LazyCommand(
        "env", "omni_platforms.cli.env:show_settings", "Show every environment variable it reads."
    ),
    LazyCommand(
        "demo",
        "omni_platforms.cli.demo:demo",
        "Restore photographs and see what the async output executor gains.",
    ),
    LazyCommand("run", "omni_platforms.cli.run:run", "Run a worker class over a file of requests."),
    LazyCommand(
        "trace",
        "omni_platforms.cli.trace:trace",
        "Run a program and write a trace of its executors.",
    ),
    LazyCommand("top", "omni_platforms.cli.top:top", "Show what running executors have in hand."),
    LazyCommand(
        "audit",
        "omni_platforms.cli.audit:audit",
        "Run a program and show what makes its host wait.",
    ),
    LazyCommand(
        "conform",
        "omni_platforms.cli.conform:conform",
        "Run the conformance suite over one platform.",
    ),
    LazyCommand(
        "bench",
        "omni_platforms.cli.bench:bench",
        "Measure what handing outputs over costs here.",
    ),
    LazyCommand("diff", "omni_platforms.cli.diff:diff", "Compare two conformance reports."),
    LazyCommand("new", "omni_platforms.cli.new:new", "Write the package of a new plugin."),
)


@click.group(cls=LazyGroup, commands=_COMMANDS)
@click.version_option(__version__, prog_name="omni-platforms")
def main() -> None:
    """One interface to every PyTorch accelerator."""
