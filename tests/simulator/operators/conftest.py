"""Gives each operator of OpInfo to the tests that ask for one, when slow tests are run."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `operator_name`. Importing the operators takes seconds: only slow runs do it."""
    if "operator_name" not in metafunc.fixturenames:
        return
    names: list[str] = []
    if "not slow" not in metafunc.config.option.markexpr:
        from tests.simulator.operators.opinfo import operators

        names = sorted(operators())
    metafunc.parametrize("operator_name", names)
