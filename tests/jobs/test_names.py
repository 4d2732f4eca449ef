"""Names of files: safe whatever the id is, and never those of another output."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from omni_platforms.jobs.names import file_stems, leaf_name

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
ODD = ["a", "A", "a.png", "../a", "a/b", "a b", ".x", "-rf", "x" * 300, "x" * 301, "a@b", "\ud800"]
IDS = st.text(st.characters(codec="utf-8"), min_size=1) | st.sampled_from(ODD)


def test_a_plain_id_is_its_own_name() -> None:
    assert file_stems(["cat-1", "b.2", "C_3"]) == {"cat-1": "cat-1", "b.2": "b.2", "C_3": "C_3"}


def test_ids_that_differ_only_in_case_have_different_files() -> None:
    stems = file_stems(["cat", "CAT"])
    assert stems["cat"].casefold() != stems["CAT"].casefold()


@settings(max_examples=50)
@given(st.lists(IDS, unique=True))
def test_stems_are_safe_and_never_the_same(ids: list[str]) -> None:
    stems = list(file_stems(ids).values())
    assert all(SAFE.fullmatch(stem) for stem in stems)
    assert len({stem.casefold() for stem in stems}) == len(ids)


@settings(max_examples=50)
@given(st.lists(st.lists(IDS, max_size=3).map(tuple), unique=True))
def test_leaves_of_one_output_never_have_the_same_name(paths: list[tuple[str, ...]]) -> None:
    taken: set[str] = set()
    names = [leaf_name("stem", path, taken).casefold() for path in paths]
    assert len(set(names)) == len(paths)


def test_a_leaf_is_never_the_whole_of_another_request() -> None:
    stems = file_stems(["a", "a@b", "a.b"])
    files = {leaf_name(stems["a"], ("b",), set()), stems["a@b"], stems["a.b"]}
    assert len(files) == 3
    assert leaf_name(stems["a"], ("b",), set()) == "a@b"
