"""Look into what a release would upload: `python tools/check_dist.py dist`.

One wheel and one sdist are expected in the folder. It prints one line a fault and exits with 1 when
there is any:

- the wheel has every file of the packages and nothing else, `py.typed` in each package, and entry
  points that lead to modules in it;
- its metadata is that of `pyproject.toml`, and the license is with it;
- the sdist has nothing that git does not track, and the wheel that is built from it is the same.
"""

from __future__ import annotations

import configparser
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
_MADE_BY_THE_BUILD = {"PKG-INFO"}
_IN_THE_SDIST = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
_FOLDERS_IN_THE_SDIST = {"tests", "docs", "examples", "tools"}


def project() -> dict[str, Any]:
    """Return the project's table of `pyproject.toml`."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def packages() -> list[str]:
    """Return the import packages of the wheel."""
    return sorted(path.parent.name for path in ROOT.glob("omni_platforms*/__init__.py"))


# The wheel --------------------------------------------------------------------


def wheel_faults(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        yield from _content_faults({name for name in names if not name.startswith(info)})
        if not wheel.name.endswith("-py3-none-any.whl"):
            yield f"{wheel.name} is not for every Python 3 and platform"
        yield from _metadata_faults(Parser().parsestr(archive.read(f"{info}/METADATA").decode()))
        if f"{info}/licenses/LICENSE" not in names:
            yield "the wheel has no license"
        entries = archive.read(f"{info}/entry_points.txt").decode()
        yield from _entry_point_faults(entries, names)


def _content_faults(names: set[str]) -> Iterator[str]:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in packages()
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - names))
    yield from (f"the wheel has {name}, which is no package's" for name in sorted(names - wanted))
    for package in packages():
        if f"{package}/py.typed" not in names:
            yield f"type checkers do not look into {package}: it has no py.typed"


def _metadata_faults(metadata: Message) -> Iterator[str]:
    said = project()
    pairs = {
        "Name": said["name"],
        "Version": said["version"],
        "Summary": said["description"],
        "Requires-Python": said["requires-python"],
        "License-Expression": said["license"],
    }
    for key, value in pairs.items():
        if metadata[key] != value:
            yield f"the metadata's {key} is {metadata[key]!r}, and the project's {value!r}"
    if set(metadata.get_all("Provides-Extra", [])) != set(said["optional-dependencies"]):
        yield "the extras are not those of the project"
    if set(metadata.get_all("Classifier", [])) != set(said["classifiers"]):
        yield "the classifiers are not those of the project"
    if not str(metadata.get_payload()).startswith("# omni-platforms"):
        yield "the description is not the README"


def _entry_point_faults(text: str, names: set[str]) -> Iterator[str]:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  names keep their case
    parser.read_file(io.StringIO(text))
    said = project()
    wanted = {"console_scripts": said["scripts"], **said["entry-points"]}
    if {group: dict(parser[group]) for group in parser.sections()} != wanted:
        yield "the entry points are not those of the project"
    for group in parser.sections():
        for name, value in parser[group].items():
            module = value.partition(":")[0].replace(".", "/")
            if not {f"{module}.py", f"{module}/__init__.py"} & names:
                yield f"the entry point {group}: {name} leads to {value}, which is not in the wheel"


# The sdist --------------------------------------------------------------------


def sdist_faults(sdist: Path, wheel: Path) -> Iterator[str]:
    """Yield what is wrong with the sdist, and where its wheel differs from `wheel`."""
    with tarfile.open(sdist) as archive:
        names = {_below_the_top(member.name) for member in archive if member.isfile()}
    yield from _sdist_content_faults(names)
    with tempfile.TemporaryDirectory() as folder:
        yield from differences(wheel, _built_from(sdist, Path(folder)))


def differences(wheel: Path, rebuilt: Path) -> Iterator[str]:
    """Yield in what the wheel that an sdist makes differs from the wheel of the checkout."""
    before, after = _contents(wheel), _contents(rebuilt)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"the wheel that the sdist makes differs in {name}"


def _below_the_top(name: str) -> str:
    return PurePosixPath(*PurePosixPath(name).parts[1:]).as_posix()


def _sdist_content_faults(names: set[str]) -> Iterator[str]:
    tracked = _tracked()
    if tracked is not None:
        for name in sorted(names - tracked - _MADE_BY_THE_BUILD):
            yield f"the sdist has {name}, which git does not track"
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "constraints.txt",
    }
    folders = {name.split("/")[0] for name in names}
    for name in sorted(wanted - names) + sorted({"tests", "docs", "examples", "tools"} - folders):
        yield f"the sdist lacks {name}"


def _tracked() -> set[str] | None:
    """Return the files that git tracks or would track, or `None` outside a checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return None
    return set(done.stdout.splitlines()) if done.returncode == 0 else None


def _built_from(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def main(arguments: list[str]) -> int:
    """Print every fault of the wheel and the sdist in a folder; return the exit status."""
    folder = Path(arguments[0])
    wheels, sdists = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(
            f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists, and should have one each"
        )
        return 1
    faults = [*wheel_faults(wheels[0]), *sdist_faults(sdists[0], wheels[0])]
    print("\n".join(faults) or f"{wheels[0].name} and {sdists[0].name} are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
