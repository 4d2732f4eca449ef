"""`omni-platforms new`: write the package of a new plugin."""

from __future__ import annotations

from pathlib import Path

import click

from omni_platforms.cli.output import json_channel, json_option


@click.command("new")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The folder in which the project's own folder is made.",
)
@json_option
def new(name: str, into: Path, as_json: bool) -> None:
    """Write the package of a new plugin.

    NAME is the platform's name, such as acme. The project omni-platforms-NAME can be
    installed at once, is found by `omni-platforms list`, and passes T0 of the
    conformance suite.
    """
    with json_channel(as_json) as write_json:
        from omni_platforms.conformance.new_plugin import write_plugin
        from omni_platforms.platform.discovery import known_names

        project = write_plugin(name, into, {*known_names(), "sim"})
        files = [str(file) for file in sorted(project.rglob("*")) if file.is_file()]
        if as_json:
            write_json({"project": str(project), "files": files})
            return
        for file in files:
            click.echo(file)
        click.echo(f"\nNext: pip install --editable '{project}[test]'")
        click.echo(f"      omni-platforms conform {name} --report report")
