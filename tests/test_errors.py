"""One error tree, and it is the one that its module draws."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re

import pytest

import omni_platforms
from omni_platforms import errors
from omni_platforms.errors import OmniError

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, OmniError)
}


def drawn() -> dict[str, str | None]:
    """Return each error of the drawing with its builtin base, where one is drawn."""
    pairs = re.findall(r"(\w+Error)\b(?: \((\w+)\))?", errors.__doc__ or "")
    return {name: builtin or None for name, builtin in pairs if name in CLASSES}


def test_the_drawing_names_every_class() -> None:
    assert set(drawn()) == set(CLASSES)


@pytest.mark.parametrize(("name", "builtin"), [(n, b) for n, b in drawn().items() if b])
def test_leaves_are_also_what_callers_catch_already(name: str, builtin: str) -> None:
    assert issubclass(CLASSES[name], getattr(builtins, builtin))


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_documented_and_crosses_processes(name: str) -> None:
    kind = CLASSES[name]
    assert kind.__doc__
    copy = pickle.loads(pickle.dumps(kind("what, where, remedy")))
    assert type(copy) is kind
    assert copy.args == ("what, where, remedy",)


def test_public_errors_are_these_very_classes() -> None:
    public = [name for name in omni_platforms.__all__ if name.endswith("Error")]
    assert {getattr(omni_platforms, name) for name in public} <= set(CLASSES.values())


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'curent_platform'"):
        omni_platforms.curent_platform  # noqa: B018
