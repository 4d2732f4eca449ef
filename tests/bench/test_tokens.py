"""`tokens`: every number of every step is checked, and every way gives it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from omni_platforms.bench import tokens
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Work
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform

HERE = torch.device("cpu")
STEPS = tokens.Steps(
    Work("tiny", 2), sequences=3, logprobs=True, count=5, first=tokens.VOCABULARY - 2
)


@pytest.fixture
def model() -> tokens.Model:
    return tokens.Model(Bench(CpuPlatform(), HERE, rounds=2))


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("name", tokens.WAYS)
def test_every_way_gives_the_numbers_of_every_step(
    model: tokens.Model, name: str, logprobs: bool
) -> None:
    steps = tokens.Steps(STEPS.work, 3, logprobs, STEPS.count, STEPS.first)
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        values = tokens.loops(outputs, outputs)[name](model, steps)
    tokens.check(name, steps, values)
    assert [set(value) for value in values] == [{"ids", "logprobs"} if logprobs else {"ids"}] * 5
    assert [int(value["ids"][0]) for value in values] == [
        tokens.VOCABULARY - 2,
        tokens.VOCABULARY - 1,
        0,
        1,
        2,
    ]


def right() -> list[dict[str, Any]]:
    numbers = range(STEPS.first, STEPS.first + STEPS.count)
    ids = [torch.arange(3) + number % tokens.VOCABULARY for number in numbers]
    return [{"ids": value, "logprobs": value * -0.5} for value in ids]


def late(values: list[dict[str, Any]]) -> None:
    values[1:] = values[:-1]


def lost(values: list[dict[str, Any]]) -> None:
    values.pop()


def changed(name: str, values: list[dict[str, Any]]) -> None:
    values[3] = {**values[3], name: values[3][name].clone()}
    values[3][name][2] += 1


@pytest.mark.parametrize(
    "break_it", [late, lost, partial(changed, "ids"), partial(changed, "logprobs")]
)
def test_a_way_that_gives_other_numbers_is_found(break_it: Any) -> None:
    values = right()
    tokens.check("a way", STEPS, values)
    break_it(values)
    with pytest.raises(BenchError, match="tokens, a way"):
        tokens.check("a way", STEPS, values)


def test_a_wrong_way_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_cpu", lambda model, steps: right())
    monkeypatch.setattr(tokens, "_QUICK_STEPS", 4)
    with pytest.raises(BenchError, match=r"blocking \.cpu\(\)"):
        tokens.run(Bench(CpuPlatform(), HERE, rounds=1, quick=True))


def test_rows_say_tokens_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_QUICK_STEPS", 4)
    rows = tokens.run(Bench(CpuPlatform(), HERE, rounds=1, quick=True))
    assert [row.way for row in rows] == [tokens.ALONE, *tokens.WAYS] * 2
    assert {row.case["loop"] for row in rows} == {"launch-bound", "device-bound"}
    assert {row.case["output_bytes"] for row in rows} == {64 * 12}
    assert {row.base for row in rows} == {None, tokens.ALONE}
    for row in rows:
        assert row.note.startswith(f"{64 / row.seconds:,.0f} tokens a second")
