"""Fake plugins that are real distributions: a module and its metadata in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# A plugin that is available, and whose platform is a CPU platform by another name.
GOOD = """
from omni_platforms.platform import Probe, ProbeStatus, hookimpl

@hookimpl
def omni_platforms_probe():
    return Probe(NAME, ProbeStatus.AVAILABLE, "two of them", 2, {"sdk": "3.4"})

@hookimpl
def omni_platforms_create(name):
    from omni_platforms.platform import OmniPlatform
    return type("Fake", (OmniPlatform,), {"name": name})()
"""


def good(name: str) -> str:
    """Return the source of a plugin that answers AVAILABLE for `name`."""
    return GOOD.replace("NAME", repr(name))


def probing(name: str, body: str) -> str:
    """Return the source of a plugin for `name` whose probe does `body` first."""
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    return good(name).replace(
        "def omni_platforms_probe():\n", f"def omni_platforms_probe():\n{indented}\n"
    )


def creating(name: str, body: str) -> str:
    """Return the source of an available plugin for `name` whose create hook does `body`."""
    head, _, _ = good(name).partition("    from omni_platforms.platform import OmniPlatform")
    return head + textwrap.indent(textwrap.dedent(body), "    ")


def write_plugin(
    folder: Path,
    name: str,
    source: str | None = None,
    *,
    distribution: str | None = None,
    version: str = "1.0",
    value: str | None = None,
) -> Path:
    """Install a distribution with one entry point `name` into `folder`, and return `folder`.

    Its module notes each import in the file `imported-<module>` beside it.
    """
    distribution = distribution or f"fake_{name.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    module = f"{distribution}_module"
    text = good(name) if source is None else textwrap.dedent(source)
    note = f"import pathlib; pathlib.Path({str(folder / ('imported-' + module))!r}).touch()\n"
    (folder / f"{module}.py").write_text(note + text)
    info = folder / f"{distribution}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text(f"[omni_platforms]\n{name} = {value or module}\n")
    return folder


def was_imported(folder: Path, distribution: str) -> bool:
    """Whether the plugin module of `distribution` in `folder` was imported by anybody."""
    return (folder / f"imported-{distribution}_module").exists()


def clean_environment(*folders: Path, **variables: str) -> dict[str, str]:
    """Return this process's environment without our variables, with `folders` importable."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("OMNI_")}
    # First, so that a fake wins; what made our own package importable stays behind them.
    kept = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *kept])
    return {**environment, **variables}


def run_python(code: str, *folders: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that sees the plugins in `folders`."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=clean_environment(*folders, **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )


def run_cli(
    *arguments: str, folders: tuple[Path, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `omni-platforms` with `arguments` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "omni_platforms", *arguments],
        env=clean_environment(*folders, **variables),
        capture_output=True,
        text=True,
        timeout=90,
    )
