"""A click group that imports a command when it is run, and that speaks our errors."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import IO, Any, NamedTuple

import click

from omni_platforms.errors import OmniError


class LazyCommand(NamedTuple):
    """A command's name, where it is (`module:attribute`) and its one line of help."""

    name: str
    where: str
    help: str

    def load(self) -> click.Command:
        """Import the command; raises what its import raises."""
        module, _, attribute = self.where.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class CommandError(click.ClickException):
    """One of our errors as one line on standard error, exit status 1, no traceback."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        line = " ".join(self.format_message().split())
        click.echo(f"omni-platforms: error: {line}", file=file, err=file is None)


class LazyGroup(click.Group):
    """Shows its commands' help without importing them."""

    def __init__(self, *args: Any, commands: Iterable[LazyCommand] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = {command.name: command for command in commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command, or `None` for an unknown name."""
        command = self._lazy.get(cmd_name)
        return None if command is None else command.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of `--help` that lists the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.help) for command in self._lazy.values()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an `OmniError` becomes one line and exit status 1."""
        try:
            return super().invoke(ctx)
        except OmniError as error:
            raise CommandError(str(error)) from error
