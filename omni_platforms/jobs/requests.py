"""Reading a file of requests: one JSON object a line, where a bad line costs only itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from omni_platforms.jobs.names import file_stems

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Request:
    """One request, as the worker gets it: `value` is the whole object of line number `line`."""

    id: str
    line: int
    value: dict[str, Any]
    digest: str
    """Tells whether a request is the one that an earlier run has finished."""


@dataclass(frozen=True)
class BadLine:
    """A line that is no request, and why."""

    line: int
    error: str


@dataclass
class RequestFile:
    """What a file holds. Empty lines count as lines, and are nothing else."""

    requests: list[Request] = field(default_factory=list)
    bad_lines: list[BadLine] = field(default_factory=list)
    stems: dict[str, str] = field(default_factory=dict)
    """How the files of each request's output begin, by the request's id."""


def read_requests(lines: Iterable[bytes]) -> RequestFile:
    """Read requests, in UTF-8. Blocks for the file; holds all of them.

    A request's id is the text or whole number under "id", or "line-N" without one. Two
    requests of one id cannot both have results: the later one is a bad line.
    """
    found = RequestFile()
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.strip():
            continue
        try:
            request = _request(number, text)
            if request.id in seen:
                raise ValueError(f"the id {request.id!r} is that of line {seen[request.id]}, too")
        except (ValueError, RecursionError) as error:
            found.bad_lines.append(BadLine(number, _reason(error)))
        else:
            seen[request.id] = number
            found.requests.append(request)
    found.stems = file_stems(seen)
    return found


def _request(number: int, text: bytes) -> Request:
    value = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    if not isinstance(value, dict):
        raise ValueError(f"a request is a JSON object, and not {type(value).__name__}")
    return Request(_id(number, value), number, value, _digest(value))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _id(number: int, value: dict[str, Any]) -> str:
    given = value.get("id")
    if given is None:
        return f"line-{number}"
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise ValueError(f'"id" is a text or a whole number, and not {json.dumps(given)[:80]}')
    return str(given)


def _digest(value: dict[str, Any]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} (column {error.colno})"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)
