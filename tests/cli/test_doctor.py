"""The doctor tries what it reports, and finds what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omni_platforms.cli import checks
from omni_platforms.platform import Capability, CpuPlatform, OmniPlatform
from tests.fake_plugins import creating, run_cli, write_plugin

BASE = "from omni_platforms.platform import OmniPlatform, Capability, MemoryInfo\n"


def examined(folder: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    done = run_cli("doctor", "--json", folders=(folder,), **variables)
    document = json.loads(done.stdout)
    document["checks"] = {check["name"]: check for check in document["checks"]}
    return done.returncode, document


def test_a_healthy_cpu(tmp_path: Path) -> None:
    status, document = examined(tmp_path)
    outcomes = {name: check["outcome"] for name, check in document["checks"].items()}
    assert (status, document["ok"], document["platform"]) == (0, True, "cpu")
    assert "fail" not in outcomes.values()
    assert outcomes["copy"] == outcomes["memory"] == "ok"
    assert outcomes["device_events"] == "skip"
    assert torch.__version__ in document["checks"]["versions"]["detail"]


def test_a_platform_that_promises_too_much_fails(tmp_path: Path) -> None:
    body = BASE + (
        "class P(OmniPlatform):\n"
        "    name = 'one'\n"
        "    capabilities = frozenset({Capability.DEVICE_EVENTS})\n"
        "    def memory_info(self, device=None): return MemoryInfo(5, 3)\n"
        "    def device_name(self, index=0): raise KeyError('sdk')\n"
        "return P()\n"
    )
    write_plugin(tmp_path, "one", creating("one", body))
    status, document = examined(tmp_path)
    found = document["checks"]
    assert (status, document["ok"], document["platform"]) == (1, False, "one")
    assert "returns None" in found["device_events"]["detail"]
    assert "KeyError" in found["devices"]["detail"]
    assert found["memory"]["outcome"] == "fail"
    assert all(check["remedy"] for check in found.values() if check["outcome"] == "fail")
    assert found["copy"]["outcome"] == "ok"
    assert found["copy mode"]["outcome"] == "warn"


def test_a_broken_plugin_is_a_warning_and_under_strict_a_failure(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bad", "raise ImportError('no libfoo')")
    status, document = examined(tmp_path)
    assert status == 0
    assert document["checks"]["plugin bad"]["outcome"] == "warn"
    assert "no libfoo" in document["checks"]["plugin bad"]["detail"]
    status, document = examined(tmp_path, OMNI_PLATFORM_STRICT="1")
    assert (status, document["platform"]) == (1, None)


@pytest.mark.parametrize("name", ["cuda", "nothing"])
def test_a_platform_that_cannot_be_had_fails_with_a_remedy(tmp_path: Path, name: str) -> None:
    status, document = examined(tmp_path, OMNI_PLATFORM=name)
    assert status == 1
    assert document["checks"]["platform"]["outcome"] == "fail"
    assert "OMNI_PLATFORM" in document["checks"]["platform"]["remedy"]


def test_people_see_each_check_and_its_remedy(tmp_path: Path) -> None:
    done = run_cli("doctor", folders=(tmp_path,), OMNI_PLATFORM="nothing")
    assert "fail  platform: OMNI_PLATFORM=nothing" in done.stdout
    assert "-> Install the plugin" in done.stdout


class Altered:
    """An executor whose results went through `alter`."""

    def __init__(self, alter: Callable[[dict[str, Any]], object]) -> None:
        self.alter = alter

    def __call__(self, platform: OmniPlatform) -> Altered:
        return self

    def __enter__(self) -> Altered:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, nest: dict[str, Any]) -> Any:
        copies = {name: tensor.clone() for name, tensor in nest.items()}
        self.alter(copies)
        return SimpleNamespace(result=lambda timeout: copies)

    def stats(self) -> Any:
        return SimpleNamespace(mode="blocking", pinned=False, reason="a test")


def copy_check(monkeypatch: pytest.MonkeyPatch, alter: Callable[[dict[str, Any]], object]) -> Any:
    monkeypatch.setattr(checks, "AsyncOutputExecutor", Altered(alter))
    return {check.name: check for check in checks.check_platform(CpuPlatform())}["copy"]


def flip_a_bit(results: dict[str, Any]) -> None:
    results["torch.bfloat16"].view(torch.uint8)[7] ^= 1


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (flip_a_bit, "torch.bfloat16"),
        (lambda r: r.update({"torch.int64": r["torch.int64"].int()}), "torch.int64"),
        (lambda r: r["a transposed view"].zero_(), "a transposed view"),
    ],
)
def test_a_wrong_copy_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, alter: Callable[[dict[str, Any]], object], named: str
) -> None:
    check = copy_check(monkeypatch, alter)
    assert (check.outcome, check.detail.rpartition(": ")[2]) == ("fail", named)


def test_a_right_copy_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copy_check(monkeypatch, lambda results: None).outcome == "ok"


@pytest.mark.parametrize(
    ("declared", "works", "outcome"),
    [(True, True, "ok"), (True, False, "fail"), (False, True, "warn"), (False, False, "skip")],
)
def test_a_primitive_is_compared_with_its_declaration(
    declared: bool, works: bool, outcome: str
) -> None:
    class Fake(CpuPlatform):
        capabilities = frozenset({Capability.HOST_REGISTRATION} if declared else ())

        def register_host_memory(self, buffer: Any) -> Any:
            return SimpleNamespace(close=lambda: None) if works else None

    found = {check.name: check for check in checks.check_platform(Fake())}
    assert found["host_registration"].outcome == outcome
