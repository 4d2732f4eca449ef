"""Which tests need the libraries of the dependency group `models`."""

from __future__ import annotations

import importlib.util

import pytest

MISSING = [name for name in ("diffusers", "transformers") if importlib.util.find_spec(name) is None]
needs_models = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        bool(MISSING), reason=f"models: {' and '.join(MISSING)} missing; pip install --group models"
    ),
]
