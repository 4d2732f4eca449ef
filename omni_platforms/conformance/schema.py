"""The schema of `conformance.json`, as JSON Schema (draft 2020-12).

`docs/conformance-report.schema.json` is this, printed by
`python -m omni_platforms.conformance.schema`; a test holds the two together.
"""

from __future__ import annotations

import json
from typing import Any

from omni_platforms.conformance.record import SCHEMA_VERSION, TIERS, Mode, Outcome

_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1}
_TIER = {"enum": list(TIERS)}
_MODE = {"enum": [mode.value for mode in Mode]}


def _said(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


_TIER_OR_NONE = {"enum": [*TIERS, None]}
_SECONDS = {"type": "number", "minimum": 0, "exclusiveMaximum": 1e9}

ROW: dict[str, Any] = {
    "type": "object",
    "description": "One test of the suite and how it ended.",
    "required": ["id", "tier", "outcome", "mode"],
    "properties": {
        "id": _said(_NAME, "The test's name below the suite, the same in every run."),
        "tier": _TIER,
        "outcome": _said(
            {"enum": [outcome.value for outcome in Outcome]},
            "known: failed as the vendor's list of known failures says; stale: did not fail as "
            "that list says; blocked: not run, because an earlier tier failed; error: the test "
            "could not be carried out.",
        ),
        "mode": _said(_MODE, "What this test ran on."),
        "reason": _said(_TEXT, "One line: why it failed, was skipped or blocked."),
        "duration_s": _said(_SECONDS, "Seconds."),
        "contract": _said(_TEXT, "What the platform promises here."),
        "remedy": _said(_TEXT, "Where a failure of this test usually comes from."),
        "detail": _said(_TEXT, "The traceback or output of a failure."),
    },
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Conformance report of omni-platforms",
    "type": "object",
    "required": ["schema_version", "suite_version", "platform", "mode", "tier_declared", "rows"],
    "properties": {
        "schema_version": {"const": SCHEMA_VERSION},
        "suite_version": _said(_TEXT, "The version of omni-platforms that ran the suite."),
        "platform": _said(_NAME, "The name that selects the platform."),
        "mode": _said(_MODE, "hardware, or simulated where any test ran on a simulated device."),
        "tier_declared": _said(_TIER_OR_NONE, "The tier that the platform claims."),
        "tier_certified": _said(_TIER_OR_NONE, "The tier that the rows prove."),
        "ok": _said(
            {"type": "boolean"},
            "Nothing failed and, after a complete run, the claimed tier is certified.",
        ),
        "device": _said(_TEXT, "The first device's model name."),
        "device_count": {"type": "integer", "minimum": 0},
        "versions": {"type": "object", "additionalProperties": _TEXT},
        "started": _said(_TEXT, "When the run began, ISO 8601."),
        "tiers": _said({"type": "array", "items": _TIER}, "The tiers that were asked for."),
        "rows": {"type": "array", "items": ROW},
    },
}


def text() -> str:
    """Return the schema as the published file has it."""
    return json.dumps(SCHEMA, indent=2) + "\n"


if __name__ == "__main__":
    print(text(), end="")
