"""`omni-platforms doctor`: try the selected platform end to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from omni_platforms.cli.output import json_channel, json_option

if TYPE_CHECKING:
    from omni_platforms.cli.checks import Check

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


@click.command("doctor")
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Try the platform end to end.

    Looks at versions, plugins, devices and memory, tries streams, events and
    pinned memory, and copies outputs of several types to the host, compared bit
    for bit. A failed check makes the exit status 1.
    """
    with json_channel(as_json) as write_json:
        platform, findings = _examine((lambda check: None) if as_json else _print)
        failed = any(check.outcome == "fail" for check in findings)
        if as_json:
            rows = [dataclasses.asdict(check) for check in findings]
            write_json({"platform": platform, "ok": not failed, "checks": rows})
    if failed:
        ctx.exit(1)


def _examine(show: Callable[[Check], None]) -> tuple[str | None, list[Check]]:
    """Run every check, show each as it ends, and return the platform's name and all of them."""
    # Imported here: the checks import torch, which takes seconds.
    from omni_platforms.cli import checks
    from omni_platforms.platform.discovery import discover

    findings: list[Check] = []

    def add(found: Iterable[Check]) -> None:
        for check in found:
            findings.append(check)
            show(check)

    add([checks.check_versions()])
    reports = discover()
    add(checks.check_plugins(reports))
    platform, verdict = checks.select(reports)
    add([verdict])
    if platform is not None:
        add(checks.check_platform(platform))
    return (None if platform is None else platform.name), findings


def _print(check: Check) -> None:
    outcome = click.style(check.outcome.ljust(4), fg=_COLOURS[check.outcome])
    click.echo(f"{outcome}  {check.name}: {check.detail}")
    if check.remedy:
        click.echo(f"      -> {check.remedy}")
