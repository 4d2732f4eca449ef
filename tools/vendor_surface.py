"""Read what a vendor's package offers from its source files; nothing of it is imported.

As a program it records a wheel, so that tests without the wheel can hold the
plugins to it:

    python tools/vendor_surface.py WHEEL MODULE [NATIVE ...] > tests/contract/surfaces/...json

`MODULE` is the module whose public names are recorded. `NATIVE` are names of its C++
part: each one that is a whole string in a shared library of the wheel is recorded.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Arguments:
    """What a function takes, without the first argument of a method."""

    positional: tuple[str, ...] = ()
    required: int = 0
    """How many of the positional ones have no default."""
    keyword_only: tuple[str, ...] = ()
    more_positional: bool = False
    more_keywords: bool = False

    def complaint(self, count: int, keywords: Iterable[str], starred: bool = False) -> str | None:
        """Say why a call with `count` positional arguments and `keywords` fails, or nothing."""
        if count > len(self.positional) and not self.more_positional:
            return f"takes {len(self.positional)} arguments, not {count}"
        known = {*self.positional[count:], *self.keyword_only}
        for keyword in keywords:
            if keyword not in known and not self.more_keywords:
                return f"takes no argument {keyword!r}"
        missing = {*self.positional[count : self.required]} - {*keywords}
        return f"also needs {', '.join(sorted(missing))}" if missing and not starred else None


@dataclass
class Member:
    """One name of a module or class. `arguments` is `None` for what is no function or class."""

    arguments: Arguments | None = None
    returns: str = ""
    """The return annotation, as written."""
    members: dict[str, Member] | None = None
    """The names of a class's instances, or of a module."""
    source: str = ""
    """Where it was read, for tables that are written by hand."""

    def to_json(self) -> Json:
        """Return the member as JSON types, without what is empty."""
        found: Json = {}
        if self.arguments is not None:
            found["arguments"] = {k: v for k, v in vars(self.arguments).items() if v}
        if self.returns:
            found["returns"] = self.returns
        if self.members is not None:
            found["members"] = {n: each.to_json() for n, each in sorted(self.members.items())}
        return found


def member_from_json(document: Json) -> Member:
    """Return the member that `to_json` made `document` of."""
    given = document.get("arguments")
    lists = {"positional", "keyword_only"}
    arguments = None
    if given is not None:
        arguments = Arguments(**{k: tuple(v) if k in lists else v for k, v in given.items()})
    members = document.get("members")
    return Member(
        arguments,
        document.get("returns", ""),
        None if members is None else {n: member_from_json(each) for n, each in members.items()},
        document.get("source", ""),
    )


# Source files -----------------------------------------------------------------


@dataclass
class Sources:
    """The Python files of a package: how to read one, by its path, and what was read of them."""

    read: Callable[[str], str | None]
    """Returns a file's text, or `None` where there is no such file."""
    inside: tuple[str, ...]
    """The packages whose files are read; what is imported from others is only a name."""
    _modules: dict[str, dict[str, Member]] = field(default_factory=dict)

    def module(self, name: str) -> dict[str, Member]:
        """Return the names of the module `name`; empty where it has no Python file."""
        if name not in self._modules:
            self._modules[name] = {}  # a module that imports itself in a circle ends here
            path, text = self._find(name)
            if text is not None:
                tree = ast.parse(text)
                is_package = path.endswith(("__init__.py", "__init__.pyi"))
                for member_name, member in self._names(name, is_package, tree.body):
                    self._add(self._modules[name], member_name, member)
        return self._modules[name]

    @staticmethod
    def _add(found: dict[str, Member], name: str, member: Member) -> None:
        """Keep what says more: an `else` often makes a dummy of the same name."""
        if name not in found or member != Member():
            found[name] = member

    def _find(self, name: str) -> tuple[str, str | None]:
        if not any(name == package or name.startswith(f"{package}.") for package in self.inside):
            return name, None
        base = name.replace(".", "/")
        for path in (f"{base}/__init__.py", f"{base}.py", f"{base}/__init__.pyi", f"{base}.pyi"):
            text = self.read(path)
            if text is not None:
                return path, text
        return base, None

    def _names(
        self, module: str, is_package: bool, body: Iterable[ast.stmt]
    ) -> Iterator[tuple[str, Member]]:
        for node in _statements(body):
            if isinstance(node, ast.ImportFrom):
                yield from self._imported(_absolute(module, is_package, node), node)
            elif isinstance(node, ast.Import):
                yield from (
                    (alias.asname or alias.name.split(".")[0], Member()) for alias in node.names
                )
            else:
                yield from _defined(node)

    def _imported(self, source: str, node: ast.ImportFrom) -> Iterator[tuple[str, Member]]:
        names = self.module(source)
        for alias in node.names:
            if alias.name == "*":
                yield from ((n, each) for n, each in names.items() if not n.startswith("_"))
            else:
                found = names.get(alias.name) or Member()
                yield alias.asname or alias.name, found


def _absolute(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    parts = module.split(".")
    if not node.level:
        return node.module or ""
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's statements, also those under `if`, `try` and `with`."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for child in getattr(node, name, []):
                    inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                    yield from _statements(inner)


def _defined(node: ast.stmt) -> Iterator[tuple[str, Member]]:
    if isinstance(node, ast.FunctionDef):
        yield node.name, Member(arguments_of(node.args), ast.unparse(node.returns or ast.Name("")))
    elif isinstance(node, ast.ClassDef):
        yield node.name, _class(node)
    else:
        yield from ((name, Member()) for name in _assigned(node))


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id


def _class(node: ast.ClassDef) -> Member:
    members: dict[str, Member] = {}
    arguments = Arguments(more_positional=True, more_keywords=True)
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            taken = arguments_of(each.args, method=True)
            if each.name in ("__init__", "__new__"):
                arguments = taken
            is_property = any("property" in ast.unparse(d) for d in each.decorator_list)
            members[each.name] = Member() if is_property else Member(taken)
        members.update((name, Member()) for name in _assigned(each))
        members.update((name, Member()) for name in _ctypes_fields(each))
    return Member(arguments, members=members)


def _ctypes_fields(node: ast.stmt) -> Iterator[str]:
    """Yield the names in the `_fields_` of a ctypes structure."""
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_fields_":
        for pair in getattr(node.value, "elts", []):
            yield ast.literal_eval(pair.elts[0])


def arguments_of(taken: ast.arguments, method: bool = False) -> Arguments:
    """Return what a function's definition says that it takes."""
    names = [each.arg for each in taken.posonlyargs + taken.args][1 if method else 0 :]
    return Arguments(
        tuple(names),
        max(0, len(names) - len(taken.defaults)),
        tuple(each.arg for each in taken.kwonlyargs),
        taken.vararg is not None,
        taken.kwarg is not None,
    )


# Wheels -----------------------------------------------------------------------


def folder_reader(root: Path) -> Callable[[str], str | None]:
    """Return what reads a file below `root`."""

    def read(path: str) -> str | None:
        file = root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    return read


def record(wheel: Path, module: str, native: Iterable[str]) -> Json:
    """Return the JSON form of what the wheel's `module` offers to the public."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        package = module.partition(".")[0]
        sources = Sources(lambda p: archive.read(p).decode() if p in names else None, (package,))
        found = {n: m for n, m in sources.module(module).items() if not n.startswith("_")}
        libraries = [archive.read(n) for n in names if PurePosixPath(n).suffix == ".so"]
        (metadata,) = [n for n in names if n.endswith(".dist-info/METADATA")]
        version = _field(archive.read(metadata).decode(), "Version")
    return {
        "file": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "version": version,
        "module": module,
        "members": Member(members=found).to_json()["members"],
        "native": sorted(n for n in native if any(_whole(n) in lib for lib in libraries)),
    }


def _whole(name: str) -> bytes:
    return b"\0" + name.encode() + b"\0"


def _field(metadata: str, name: str) -> str:
    return next(
        line.partition(":")[2].strip() for line in metadata.splitlines() if line.startswith(name)
    )


def dump(document: Mapping[str, Any]) -> str:
    """Return the recorded file's text: one line a member."""
    head = {k: v for k, v in document.items() if k != "members"}
    lines = [f"{json.dumps(n)}: {json.dumps(each)}" for n, each in document["members"].items()]
    body = ",\n    ".join(lines)
    return json.dumps(head, indent=2)[:-2] + f',\n  "members": {{\n    {body}\n  }}\n}}\n'


def main(arguments: list[str]) -> int:
    """Record the wheel that the command line names."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    print(dump(record(Path(arguments[0]), arguments[1], arguments[2:])), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
