"""`omni-platforms list`: every plugin and how it stands."""

from __future__ import annotations

from collections.abc import Sequence

import click

from omni_platforms import settings
from omni_platforms.cli.output import json_channel, json_option, note, print_table
from omni_platforms.errors import PlatformError
from omni_platforms.platform.discovery import PluginReport, discover
from omni_platforms.platform.probe import ProbeStatus
from omni_platforms.platform.selection import choose


@click.command("list")
@json_option
@click.pass_context
def list_platforms(ctx: click.Context, as_json: bool) -> None:
    """Show every plugin and how it stands.

    Every plugin that is not disabled is imported and probed, whatever
    OMNI_PLATFORM says; no platform is created. With OMNI_PLATFORM_STRICT=1 a
    BROKEN plugin makes the exit status 1.
    """
    with json_channel(as_json) as write_json:
        strict = settings.read("OMNI_PLATFORM_STRICT")
        requested = settings.read("OMNI_PLATFORM")
        reports = discover()
        chosen = _chosen(reports, requested, strict)
        if as_json:
            rows = [{**report.row(), "selected": report is chosen} for report in reports]
            write_json({"platforms": rows})
        else:
            _print(reports, chosen)
    if strict and any(report.status is ProbeStatus.BROKEN for report in reports):
        ctx.exit(1)


def _chosen(
    reports: Sequence[PluginReport], requested: str | None, strict: bool
) -> PluginReport | None:
    try:
        return choose(reports, requested=requested, strict=strict)
    except PlatformError as error:
        note(f"no platform is selected: {error}")
        return None


def _print(reports: Sequence[PluginReport], chosen: PluginReport | None) -> None:
    headers = ("", "NAME", "STATUS", "DEVICES", "PLUGIN", "REASON")
    print_table(
        headers,
        [
            (
                "*" if report is chosen else "",
                report.name,
                report.status.value,
                report.device_count,
                report.source,
                report.reason,
            )
            for report in reports
        ],
    )
