"""Makes modules that stand in for a vendor's, with no name that the vendor's lacks."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from importlib.machinery import ModuleSpec

PRIVATE = ("_is_in_bad_fork", "_lazy_init")
"""Names without a promise that torch itself asks a device's module for."""


def publish(
    name: str, implementation: object, real_names: Iterable[str], release: str
) -> types.ModuleType:
    """Return a package `name` with those of `real_names` that `implementation` has.

    It is put into `sys.modules`. Asking for another of `real_names` raises an
    `AttributeError` that says so; code that looks for a feature sees it absent.
    """
    known = frozenset(real_names)
    module = package(name, f"The simulated stand-in for {name} of {release}.")
    for each in (*sorted(known), *PRIVATE):
        if hasattr(implementation, each):
            setattr(module, each, getattr(implementation, each))

    def missing(attribute: str) -> object:
        if attribute in known:
            raise AttributeError(f"{name}.{attribute} of {release} is not simulated")
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}, nor has {release}")

    module.__getattr__ = missing  # type: ignore[method-assign]
    return module


def package(name: str, text: str) -> types.ModuleType:
    """Return a new, empty package that `import` and `find_spec` find."""
    module = types.ModuleType(name, text)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    sys.modules[name] = module
    return module
