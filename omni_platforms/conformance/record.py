"""What a run of the conformance suite found, as data: rows, the report, the certified tier.

Everything here is pure. The JSON form of a report is `conformance.json` in the
report's folder; its schema is `docs/conformance-report.schema.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from omni_platforms.errors import ReportFormatError

_Record = TypeVar("_Record", "Row", "Report")

SCHEMA_VERSION = 1
"""Raised when a reader of the JSON form would have to change."""

TIER_TITLES = {
    "T0": "identity and probe",
    "T1": "devices and memory",
    "T2": "streams and events",
    "T3": "pinned memory, registration and copies",
    "T4": "the executors end to end",
    "T5": "collectives, graphs, several devices",
}
TIERS = tuple(TIER_TITLES)
"""From the first to the last; each one stands on those before it."""


class Outcome(str, Enum):
    """How one test of the suite ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The platform breaks the contract."""
    ERROR = "error"
    """The test could not be carried out: a fixture raised, a process died, a timeout."""
    SKIPPED = "skipped"
    """Does not apply: the capability is not declared, or there is one device only."""
    BLOCKED = "blocked"
    """Not run, because an earlier tier failed."""
    KNOWN = "known"
    """Failed just as the vendor's list of known failures says."""
    STALE = "stale"
    """On the vendor's list of known failures, and did not fail as it says there."""


class Mode(str, Enum):
    """What a test ran on."""

    HARDWARE = "hardware"
    SIMULATED = "simulated"


FAILURES = frozenset({Outcome.FAILED, Outcome.ERROR, Outcome.STALE})
"""The outcomes that make a run fail."""
_CERTIFYING = frozenset({Outcome.PASSED, Outcome.SKIPPED})


@dataclass(frozen=True)
class Row:
    """One test of the suite and how it ended.

    `id` is the test's name below the suite, the same in every run, such as
    `test_t2_events.py::test_an_event_covers_a_copy[1]`. `duration_s` is in
    seconds. Raises `ReportFormatError` for a value that no report may hold.
    """

    id: str
    tier: str
    outcome: Outcome
    mode: Mode
    reason: str = ""
    """One line: why it failed, was skipped or blocked, or what is known of it."""
    duration_s: float = 0.0
    contract: str = ""
    """What the platform promises here, in the words of the test's docstring."""
    remedy: str = ""
    """Troubleshooting: where a failure of this test usually comes from."""
    detail: str = ""
    """The traceback or output of a failure."""

    def __post_init__(self) -> None:
        _check_texts(self, "id", "tier", "reason", "contract", "remedy", "detail")
        if not self.id:
            raise ReportFormatError("a row has no id")
        if self.tier not in TIERS:
            raise ReportFormatError(f"row {self.id!r} has tier {self.tier!r}, not one of {TIERS}")
        object.__setattr__(self, "outcome", _member(Outcome, self.outcome, self.id))
        object.__setattr__(self, "mode", _member(Mode, self.mode, self.id))
        if not _is_seconds(self.duration_s):
            raise ReportFormatError(f"row {self.id!r} took {self.duration_s!r} seconds")

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {**asdict(self), "outcome": self.outcome.value, "mode": self.mode.value}


@dataclass(frozen=True)
class Report:
    """One run of the suite over one platform.

    `rows` are in the order in which they ran, each id once. `tiers` are those
    that were asked for. `versions` maps components (`torch`, `driver`) to
    versions. Raises `ReportFormatError` for values that no report may hold.
    """

    platform: str
    mode: Mode
    suite_version: str
    tier_declared: str | None
    """The tier that the platform claims; `None` when it claims none."""
    rows: Sequence[Row]
    device: str = ""
    """The first device's model name."""
    device_count: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    """When the run began, ISO 8601 with a time zone."""
    tiers: Sequence[str] = TIERS
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        _check_texts(self, "platform", "suite_version", "device", "started")
        if not self.platform:
            raise ReportFormatError("the report names no platform")
        object.__setattr__(self, "mode", _member(Mode, self.mode, "the report"))
        if not _is_count(self.device_count):
            raise ReportFormatError(f"the report counts {self.device_count!r} devices")
        if not all(isinstance(text, str) for pair in self.versions.items() for text in pair):
            raise ReportFormatError("the report's 'versions' map texts to texts")
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "tiers", tuple(self.tiers))
        for tier in (*self.tiers, *([] if self.tier_declared is None else [self.tier_declared])):
            if tier not in TIERS:
                raise ReportFormatError(f"the report speaks of tier {tier!r}, not one of {TIERS}")
        ids = [row.id for row in self.rows]
        if len(set(ids)) != len(ids):
            twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
            raise ReportFormatError(f"the report has more than one row for {', '.join(twice)}")

    @property
    def tier_certified(self) -> str | None:
        """The highest tier that this run proves, or `None`; see `certified_tier`."""
        return certified_tier(self.rows)

    @property
    def complete(self) -> bool:
        """Whether every tier was asked for."""
        return set(self.tiers) == set(TIERS)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and, after a complete run, the claimed tier is certified."""
        if any(row.outcome in FAILURES for row in self.rows):
            return False
        return not self.complete or reaches(self.tier_certified, self.tier_declared)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types, `tier_certified` and `ok` with it."""
        document = asdict(self)
        document["mode"] = self.mode.value
        document["tiers"] = list(self.tiers)
        document["versions"] = dict(self.versions)
        document["rows"] = [row.to_json() for row in self.rows]
        return {**document, "tier_certified": self.tier_certified, "ok": self.ok}


def certified_tier(rows: Iterable[Row]) -> str | None:
    """Return the highest tier up to which every tier is proved, or `None` for no tier.

    A tier is proved when at least one of its tests passed and each other one
    passed or does not apply. A known failure does not fail a run, but it proves
    nothing either: a platform with one in T2 is certified to T1 at best.
    """
    rows = list(rows)
    certified = None
    for tier in TIERS:
        outcomes = {row.outcome for row in rows if row.tier == tier}
        if Outcome.PASSED not in outcomes or not outcomes <= _CERTIFYING:
            break
        certified = tier
    return certified


def reaches(certified: str | None, declared: str | None) -> bool:
    """Whether `certified` is at least `declared`; claiming no tier is always met."""
    if declared is None:
        return True
    return certified is not None and TIERS.index(certified) >= TIERS.index(declared)


def parse_tiers(text: str | None) -> tuple[str, ...]:
    """Return the tiers of a text such as "T2", "T0,T1" or "T0-T3"; all for `None`.

    Raises `ValueError` for what names no tier.
    """
    if text is None:
        return TIERS
    chosen: set[str] = set()
    for part in text.upper().replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not {first, last} <= {*TIERS} or last < first:
            raise ValueError(f"{part!r} names no tier; write T2, or T0,T1, or T0-T3")
        chosen.update(TIERS[TIERS.index(first) : TIERS.index(last) + 1])
    return tuple(tier for tier in TIERS if tier in chosen)


def report_from_json(document: object) -> Report:
    """Return the report that `to_json` made `document` of.

    Fields that this version does not know are ignored. Raises
    `ReportFormatError` when a field is missing, has a wrong type, or contradicts
    the rows (`tier_certified` is computed anew and compared where it is there).
    """
    if not isinstance(document, Mapping):
        raise ReportFormatError(f"a report is a JSON object, not {type(document).__name__}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ReportFormatError(
            f"the report has schema_version {version!r}, and this version of omni-platforms reads "
            f"{SCHEMA_VERSION}. Write it anew, or read it with the version that wrote it."
        )
    report = _made(
        Report, {**document, "rows": [row_from_json(row) for row in _list(document, "rows")]}
    )
    if document.get("tier_certified", report.tier_certified) != report.tier_certified:
        raise ReportFormatError(
            f"the report claims to certify {document['tier_certified']!r}, but its rows "
            f"prove {report.tier_certified!r}"
        )
    return report


def row_from_json(document: object) -> Row:
    """Return the row that `to_json` made `document` of. Raises `ReportFormatError`."""
    if not isinstance(document, Mapping):
        raise ReportFormatError(f"a row is a JSON object, not {document!r}")
    return _made(Row, document)


def _made(kind: type[_Record], document: Mapping[str, Any]) -> _Record:
    """Make a dataclass of the fields that it knows; a missing one is a bad report."""
    known = {f.name: document[f.name] for f in fields(kind) if f.name in document}
    try:
        return kind(**known)
    except (TypeError, AttributeError) as error:  # a field is not there, or of another type
        where = f"{kind.__name__.lower()} {known.get('id', '')}".rstrip()
        raise ReportFormatError(f"the {where} cannot be read: {error}") from error


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise ReportFormatError(f"the report's {name!r} is a list, not {value!r}")
    return value


def _check_texts(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise ReportFormatError(f"{name!r} is a text, not {value!r}")


def _member(kind: Any, value: object, where: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        names = [member.value for member in kind]
        raise ReportFormatError(
            f"{where} has {kind.__name__.lower()} {value!r}, not one of {names}"
        ) from error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
