"""`omni-platforms demo`: restore photographs and see what the executor gains."""

from __future__ import annotations

from pathlib import Path

import click

from omni_platforms.cli.output import json_channel, json_option


@click.command("demo")
@click.argument("photos", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Folder for the results.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 1000),
    default=24,
    show_default=True,
    help="Diffusion steps a photo.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="Restore every photo this often, in each of the two runs.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    default=0.08,
    show_default=True,
    metavar="SIGMA",
    help="Standard deviation of the noise that is added first (white is 1); 0 adds none.",
)
@click.option(
    "--longest-side",
    type=click.IntRange(32, 8192),
    default=1600,
    show_default=True,
    metavar="PIXELS",
    help="Shrink larger photos to this.",
)
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    photos: tuple[Path, ...],
    out: Path,
    steps: int,
    repeat: int,
    noise: float,
    longest_side: int,
    as_json: bool,
) -> None:
    """Restore photographs and see what the async output executor gains.

    PHOTOS are files or folders; without any, photographs that scikit-image
    ships are used. Every photo is restored twice, with blocking copies and
    through the executor, and the pictures are compared bit for bit. The exit
    status is 1 when a file could not be used or the pictures differ.
    """
    with json_channel(as_json) as write_json:
        _require_extras()
        from omni_platforms import current_platform
        from omni_platforms.demo.progress import stages_on_stderr
        from omni_platforms.demo.report import document, print_report
        from omni_platforms.demo.request import DemoRequest
        from omni_platforms.demo.session import run_demo

        request = DemoRequest(photos, out, steps, repeat, noise, longest_side)
        with stages_on_stderr() as stages:
            result = run_demo(request, current_platform(), stages)
        if as_json:
            write_json(document(result))
        else:
            print_report(result)
    if not result.ok:
        ctx.exit(1)


def _require_extras() -> None:
    """Raise `DemoError` with the remedy when the demo's own dependencies are missing."""
    from importlib.util import find_spec

    from omni_platforms.errors import DemoError

    missing = [name for name in ("numpy", "PIL", "matplotlib") if find_spec(name) is None]
    if missing:
        raise DemoError(
            f"the demo needs {', '.join(missing)}, not installed here: "
            "run pip install 'omni-platforms[demo]'"
        )
