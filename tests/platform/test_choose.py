"""The rule that picks a platform from the reports, as a pure function."""

from __future__ import annotations

import itertools

import pytest

from omni_platforms import (
    AmbiguousPlatformError,
    BrokenPluginError,
    PlatformUnavailableError,
    UnknownPlatformError,
)
from omni_platforms.platform import PluginReport, ProbeStatus, choose

AVAILABLE, ABSENT, BROKEN = ProbeStatus.AVAILABLE, ProbeStatus.ABSENT, ProbeStatus.BROKEN


def report(name: str, status: ProbeStatus = AVAILABLE, reason: str = "why") -> PluginReport:
    return PluginReport(name, status, reason, f"dist-{name}", "1.5")


CPU = report("cpu")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], "cpu"),
        ([report("a", ABSENT)], "cpu"),
        ([report("a")], "a"),
        ([report("a", ABSENT), report("b")], "b"),
        ([report("a", BROKEN), report("b")], "b"),
        ([report("a", BROKEN)], "cpu"),
        ([report("cpu", BROKEN)], "cpu"),
    ],
)
def test_exactly_one_accelerator_wins_else_the_cpu(
    others: list[PluginReport], expected: str
) -> None:
    chosen = choose([*others, CPU])
    assert (chosen.name, chosen.status) == (expected, AVAILABLE)


def test_several_accelerators_are_an_error_that_lists_them() -> None:
    messages = set()
    for order in itertools.permutations([report("a"), report("b"), CPU]):
        with pytest.raises(AmbiguousPlatformError) as caught:
            choose(sorted(order, key=lambda r: r.name))
        messages.add(str(caught.value))
    (message,) = messages
    for word in ("a (dist-a 1.5)", "b (dist-b 1.5)", "OMNI_PLATFORM", "OMNI_PLATFORMS_DISABLE"):
        assert word in message


def test_a_request_decides_alone() -> None:
    reports = [report("a"), report("b"), report("c", BROKEN), CPU]
    assert choose(reports, requested="b", strict=True).name == "b"
    assert choose(reports, requested="cpu").name == "cpu"


def test_a_request_for_the_cpu_gets_the_built_in_one() -> None:
    chosen = choose([report("cpu", BROKEN), CPU], requested="cpu")
    assert chosen.status is AVAILABLE


def test_an_unknown_request_names_the_known_and_the_closest() -> None:
    with pytest.raises(UnknownPlatformError, match=r"cuad.*cpu, cuda.*mean 'cuda'"):
        choose([report("cuda"), CPU], requested="cuad")
    with pytest.raises(LookupError, match="cpu, npu"):
        choose([], requested="zzz", names=["npu", "cpu"])


def test_a_request_for_an_absent_one_gives_its_reason_and_no_fallback() -> None:
    with pytest.raises(PlatformUnavailableError, match=r"a.*dist-a 1\.5.*no device here"):
        choose([report("a", ABSENT, "no device here"), CPU], requested="a")


def test_a_request_for_a_broken_one_gives_its_cause() -> None:
    cause = ImportError("no libfoo")
    broken = PluginReport("a", BROKEN, "no libfoo", "dist-a", "1.5", error=cause)
    with pytest.raises(BrokenPluginError, match=r"dist-a 1\.5.*no libfoo.*DISABLE=a") as caught:
        choose([broken, CPU], requested="a")
    assert caught.value.__cause__ is cause


def test_strict_makes_any_broken_plugin_an_error() -> None:
    with pytest.raises(BrokenPluginError, match=r"STRICT.*'a'.*why"):
        choose([report("a", BROKEN), report("b"), CPU], strict=True)


def test_a_disabled_cpu_is_no_fallback() -> None:
    with pytest.raises(PlatformUnavailableError, match="OMNI_PLATFORMS_DISABLE"):
        choose([report("a", ABSENT), report("cpu", ABSENT)])
