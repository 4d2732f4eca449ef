"""Every variable is read when asked for, and a bad value is refused by name."""

from __future__ import annotations

import pytest

from omni_platforms import SettingError
from omni_platforms.settings import SETTINGS, read

BAD = {"seconds": ["", "abc", "0", "-1", "nan", "inf", "1s"], "1 or 0": ["2", "maybe"]}
BAD |= {kind: ["", "0", "-1", "1.5", "x"] for kind in ("count", "bytes")}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_table_is_complete(name: str) -> None:
    setting = SETTINGS[name]
    assert name == setting.name
    assert name.startswith("OMNI_")
    assert setting.kind
    assert setting.meaning.endswith(".")
    assert read(name, {}) == setting.default


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, setting in SETTINGS.items() for text in BAD.get(setting.kind, [])],
)
def test_a_bad_value_is_refused_with_the_variables_name(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=name) as caught:
        read(name, {name: text})
    assert isinstance(caught.value, ValueError)
    assert "omni-platforms env" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("OMNI_PLATFORM", " CUDA ", "cuda"),
        ("OMNI_PLATFORM", "  ", None),
        ("OMNI_PLATFORMS_DISABLE", "a, B,,c_d", ("a", "b", "c_d")),
        ("OMNI_PLATFORMS_DISABLE", "", ()),
        ("OMNI_PLATFORM_STRICT", "yes", True),
        ("OMNI_PLATFORM_STRICT", "off", False),
        ("OMNI_PROBE_TIMEOUT", "0.25", 0.25),
        ("OMNI_SIMULATE", " NPU ", "npu"),
        ("OMNI_SIMULATE_DEVICES", "4", 4),
        ("OMNI_SIMULATE_SCHEDULE", "lazy:0.1", "lazy:0.1"),
    ],
)
def test_good_values(name: str, text: str, value: object) -> None:
    assert read(name, {name: text}) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("OMNI_PLATFORM", "a,b"), ("OMNI_PLATFORMS_DISABLE", "a;b"), ("OMNI_SIMULATE", "n-pu")],
)
def test_names_that_no_plugin_can_have(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=name):
        read(name, {name: text})


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (1.0, 2.0):
        monkeypatch.setenv("OMNI_PROBE_TIMEOUT", str(seconds))
        assert read("OMNI_PROBE_TIMEOUT") == seconds


def test_a_name_that_is_no_setting_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        read("OMNI_NOTHING")
