"""Find what a change breaks in the public interface, and keep a record of it.

    python tools/check_api.py                  # compare with the record
    python tools/check_api.py --write          # keep the present interface as the record
    python tools/check_api.py --write 0.1.0    # the same, at a release

The interface is what `__all__` of the modules in the reference (`docs/api`) names, with public
methods, parameters, defaults and bases, as griffe reads it off the source; nothing is imported. The
record is `tools/api`, one stub a module, to be read in a review: that of the last release, whose
version stands in `tools/api/RELEASE`, and before the first one that of the last look.

What breaks is told, and makes the exit status 1 when a release has promised it. It may be meant: a
fragment of the changelog of type `breaking` says so, and the exit status is 0 then.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tools" / "api"
_RELEASE = "RELEASE"
PACKAGE = "omni_platforms"
_DESCRIBED = re.compile(rf"automodule:: {PACKAGE}\.([\w.]+)")
_CALLED_BY_PYTHON = {"__init__", "__call__", "__enter__", "__exit__", "__await__", "__aiter__"}
# The arguments of other records may change: only this package makes them.
_RECORDS_THAT_USERS_MAKE = {"Probe"}
_KINDS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}

Stubs = dict[str, str]


def read_interface(source: Path) -> Stubs:
    """Return the public interface of the package in the folder `source`: a stub a module."""
    package = griffe.load(
        PACKAGE, search_paths=[source], resolve_aliases=True, allow_inspection=False
    )
    names = "".join(f"{name}: object\n" for name in sorted(_public_names(package)))
    stubs = {name: "\n".join(_stub_of(package[name])) + "\n" for name in modules()}
    return {PACKAGE: names, **stubs}


def modules() -> list[str]:
    """Return the public modules, below the package: those that the reference describes."""
    pages = (ROOT / "docs" / "api").glob("*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    return sorted(set(_DESCRIBED.findall(text)))


def _public_names(module: Any) -> list[str]:
    if module.exports is not None:
        return [str(name) for name in module.exports if not str(name).startswith("__")]
    return [
        name
        for name, member in module.members.items()
        if _is_public(name) and not member.is_alias and not member.is_module
    ]


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in _CALLED_BY_PYTHON


def _stub_of(module: Any) -> Iterator[str]:
    for name in sorted(_public_names(module)):
        member = module[name]
        yield from _lines(name, member.final_target if member.is_alias else member)


def _lines(name: str, thing: Any) -> Iterator[str]:
    if thing.is_function:
        yield from (f"@{each.value}" for each in thing.decorators)
        yield f"def {name}({', '.join(_parameters(thing))}): ..."
    elif thing.is_class:
        yield from (f"@{each.value}" for each in thing.decorators)
        yield f"class {name}({', '.join(map(str, thing.bases))}):"
        yield from (f"    {line}" for line in [*_class_lines(name, thing)] or ["..."])
    elif "property" in thing.labels:
        yield f"{name}: {thing.annotation or 'object'}  # a property"
    else:
        yield f"{name}: {thing.annotation or 'object'}"


def _class_lines(name: str, kind: Any) -> Iterator[str]:
    """Yield its members, those of the package's own base classes among them."""
    for key, each in sorted(kind.all_members.items()):
        is_made_here = "dataclass" in kind.labels and name not in _RECORDS_THAT_USERS_MAKE
        if not _is_public(key) or (key == "__init__" and is_made_here):
            continue
        inherited = key not in kind.members
        if inherited or not each.is_alias:  # an import inside a class is no interface
            yield from _lines(key, each.final_target if each.is_alias else each)


def _parameters(function: Any) -> Iterator[str]:
    keywords_only = False
    for each in function.parameters:
        keywords_only |= each.kind is griffe.ParameterKind.var_positional
        if each.kind is griffe.ParameterKind.keyword_only and not keywords_only:
            keywords_only = True
            yield "*"
        default = "" if each.default is None or each.kind in _KINDS else f"={each.default}"
        yield f"{_KINDS.get(each.kind, '')}{each.name}{default}"


def read_record() -> Stubs:
    """Return the interface that is kept."""
    return {file.stem: file.read_text(encoding="utf-8") for file in RECORD.glob("*.pyi")}


def write_record(stubs: Stubs, release: str | None = None) -> None:
    """Keep an interface, at a release that of this version."""
    RECORD.mkdir(exist_ok=True)
    if release is not None:
        (RECORD / _RELEASE).write_text(f"{release}\n", encoding="utf-8")
    for name, text in stubs.items():
        (RECORD / f"{name}.pyi").write_text(text, encoding="utf-8")


def breakages(before: Stubs, after: Stubs) -> Iterator[str]:
    """Yield a line for each thing that users of `before` would miss in `after`."""
    for name in sorted(before):
        old, new = _module(name, before[name]), _module(name, after.get(name, ""))
        for found in griffe.find_breaking_changes(old, new):
            told = found.as_dict()
            values = [told[key] for key in ("old_value", "new_value")]
            change = f" ({values[0]} -> {values[1]})" if all(map(_is_text, values)) else ""
            yield f"{told['object_path']}: {found.kind.value}{change}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _module(name: str, text: str) -> griffe.Module:
    return griffe.visit(name, filepath=Path(f"{name}.pyi"), code=text)


def is_announced() -> bool:
    """Whether the changelog will say that something breaks."""
    return any((ROOT / "changelog.d").glob("*.breaking*.md"))


def main(arguments: list[str]) -> int:
    """Compare, or keep the record; return the exit status."""
    present = read_interface(ROOT)
    if arguments[:1] == ["--write"]:
        write_record(present, *arguments[1:])
        return 0
    found = list(breakages(read_record(), present))
    for line in found:
        print(line)
    if not found or is_announced():
        return 0
    if not (RECORD / _RELEASE).exists():
        print("Nothing was released yet: `make api-record` keeps the present interface.")
        return 0
    print("Announce it in changelog.d/+name.breaking.md, or keep what users rely on.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
