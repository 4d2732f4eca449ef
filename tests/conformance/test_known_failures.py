"""A vendor's list of known failures: what is read, and what is refused by name."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from omni_platforms.conformance.known_failures import KINDS, KnownFailure, read_known_failures
from omni_platforms.errors import KnownFailuresError

ENTRY = {
    "test": '"test_a.py::test_b[1]"', "kind": '"never"', "exception": '"RuntimeError"',
    "reason": '"why"', "link": '"https://example.org"',
}  # fmt: skip


def written(folder: Path, *entries: dict[str, str]) -> Path:
    file = folder / "conformance.toml"
    tables = ["[[known]]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for e in entries]
    file.write_text("\n".join(tables))
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_read(tmp_path: Path, kind: str) -> None:
    file = written(tmp_path, {**ENTRY, "kind": f'"{kind}"', "until": "2027-06-30"})
    until = datetime.date(2027, 6, 30)
    expected = KnownFailure(
        "test_a.py::test_b[1]", kind, "RuntimeError", "why", "https://example.org", until
    )
    assert read_known_failures(file) == {"test_a.py::test_b[1]": expected}
    assert not expected.is_over(datetime.date(2027, 6, 29))
    assert expected.is_over(until)


def test_an_empty_list_is_one(tmp_path: Path) -> None:
    assert read_known_failures(written(tmp_path)) == {}


@pytest.mark.parametrize("name", ENTRY)
def test_each_field_is_needed(tmp_path: Path, name: str) -> None:
    entry = {key: value for key, value in ENTRY.items() if key != name}
    with pytest.raises(KnownFailuresError, match=f"entry 1.*{name}"):
        read_known_failures(written(tmp_path, entry))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": '"sometimes"'}, "notimpl, notyet, never"),
        ({"reason": '" "'}, "not empty"),
        ({"test": "3"}, "texts"),
        ({"until": '"2027-06-30"'}, "until is a date"),
        ({"until": "2027-06-30T01:02:03"}, "until is a date"),
        ({"colour": '"red"'}, "colour"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    with pytest.raises(KnownFailuresError, match=words):
        read_known_failures(written(tmp_path, {**ENTRY, **changed}))


def test_a_test_stands_there_once(tmp_path: Path) -> None:
    with pytest.raises(KnownFailuresError, match=r"entry 2.*already"):
        read_known_failures(written(tmp_path, ENTRY, ENTRY))


@pytest.mark.parametrize("text", ["known = 3", "[[unknown]]\na = 1", "not toml", "\xff"])
def test_what_is_no_such_list_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "conformance.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(KnownFailuresError, match=r"conformance\.toml"):
        read_known_failures(file)


def test_a_subclass_of_the_exception_is_covered() -> None:
    known = KnownFailure("t", "never", "RuntimeError", "why", "link")
    assert known.covers(NotImplementedError())
    assert not known.covers(ValueError())
