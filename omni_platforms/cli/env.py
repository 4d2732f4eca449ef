"""`omni-platforms env`: every environment variable that the package reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click

from omni_platforms import settings
from omni_platforms.cli.output import json_channel, json_option, note
from omni_platforms.errors import SettingError


@dataclass
class _Row:
    """One setting as it stands; `error` tells why a value is refused."""

    setting: settings.Setting
    value: Any = None
    error: str | None = None

    @property
    def source(self) -> str:
        return "environment" if self.setting.name in os.environ else "default"

    def document(self) -> dict[str, object]:
        return {
            "name": self.setting.name,
            "kind": self.setting.kind,
            "default": self.setting.default,
            "value": self.value,
            "source": self.source,
            "meaning": self.setting.meaning,
            "error": self.error,
        }


@click.command("env")
@json_option
@click.pass_context
def show_settings(ctx: click.Context, as_json: bool) -> None:
    """Show every environment variable it reads.

    For each its kind, default, present value, where that comes from, and its
    meaning. A value that is refused makes the exit status 1.
    """
    with json_channel(as_json) as write_json:
        rows = [_row(setting) for setting in settings.SETTINGS.values()]
        if as_json:
            write_json({"settings": [row.document() for row in rows]})
        else:
            for row in rows:
                _print(row)
        refused = [row.error for row in rows if row.error is not None]
        for error in refused:
            note(f"error: {error}")
    if refused:
        ctx.exit(1)


def _row(setting: settings.Setting) -> _Row:
    try:
        return _Row(setting, value=settings.read(setting.name))
    except SettingError as error:
        return _Row(setting, value=os.environ.get(setting.name), error=str(error))


def _print(row: _Row) -> None:
    click.echo(f"{row.setting.name}={_show(row.value)}  ({row.source})")
    click.echo(f"    {row.setting.kind}; default {_show(row.setting.default)}")
    click.echo(click.wrap_text(row.setting.meaning, 88, "    ", "    "))


def _show(value: Any) -> str:
    if value is None or value == ():
        return "(none)"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(int(value) if isinstance(value, bool) else value)
