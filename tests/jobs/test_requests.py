"""A file of requests: what is one, what is not, and that a bad line costs only itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_platforms.jobs.requests import read_requests


def lines(*texts: str | bytes) -> list[bytes]:
    return [(text if isinstance(text, bytes) else text.encode()) + b"\n" for text in texts]


def test_requests_have_their_ids_or_their_lines() -> None:
    file = read_requests(lines('{"id": "a", "x": 1}', "", '{"x": 2}', '{"id": 7}'))
    assert [(r.id, r.line) for r in file.requests] == [("a", 1), ("line-3", 3), ("7", 4)]
    assert file.requests[0].value == {"id": "a", "x": 1}
    assert not file.bad_lines


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id": "a"', "not JSON"),
        ("[1]", "a JSON object, and not list"),
        ("null", "not NoneType"),
        ('{"id": true}', '"id" is a text or a whole number, and not true'),
        ('{"id": 1.5}', "and not 1.5"),
        ('{"id": ""}', '"id" is a text'),
        ('{"id": ["a"]}', "whole number"),
        ('{"id": "first"}', "that of line 1, too"),
        ('{"x": NaN}', "NaN is no JSON"),
        (b'{"x": "\xff"}', "not UTF-8: invalid start byte at byte 7"),
        ("[" * 200_000, "nested too deeply"),
        ('{"x": ' + "9" * 5000 + "}", "integer"),
    ],
)
def test_a_bad_line_costs_only_itself(text: str | bytes, why: str) -> None:
    file = read_requests(lines('{"id": "first"}', text, '{"id": "last"}'))
    assert [request.id for request in file.requests] == ["first", "last"]
    (bad,) = file.bad_lines
    assert bad.line == 2
    assert why in bad.error


def test_a_byte_order_mark_and_foreign_line_ends_do_no_harm() -> None:
    file = read_requests([b'\xef\xbb\xbf{"id": "a"}\r\n', b'{"id": "b"}'])
    assert [request.id for request in file.requests] == ["a", "b"]


def test_a_digest_is_that_of_the_content() -> None:
    one, same, other = (
        read_requests(lines(text)).requests[0].digest
        for text in ('{"id": 1, "x": 2}', '{ "x":2,"id":1 }', '{"id": 1, "x": 3}')
    )
    assert one == same
    assert one != other


_OBJECTS = st.dictionaries(st.text(), st.integers()).map(lambda value: json.dumps(value).encode())


@settings(max_examples=50)
@given(st.lists(st.one_of(st.binary(), _OBJECTS)))
def test_whatever_the_lines_are_each_is_one_thing(content: list[bytes]) -> None:
    content = [line.replace(b"\n", b"").removeprefix(b"\xef\xbb\xbf") for line in content]
    file = read_requests(line + b"\n" for line in content)
    found = sorted([r.line for r in file.requests] + [bad.line for bad in file.bad_lines])
    skipped = {number for number, line in enumerate(content, 1) if not line.strip()}
    assert set(found) | skipped == set(range(1, len(content) + 1))
    assert len(found) == len(set(found))
    assert len({request.id for request in file.requests}) == len(file.requests)
