"""Token streams: the ids of a step reach the host while the next forward is enqueued."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor
from omni_platforms.integrations.transformers import StepIds, TokenStreamer, stream_tokens
from omni_platforms.outputs import OutputFuture
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.simulator import Simulation
from tests.simulated import NAME

VOCABULARY = 97


class Model:
    """The next id is a function of the last one; counts its forwards."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.forwards = 0
        self.fails_at = fails_at
        self.inference: list[bool] = []

    def __call__(self, input_ids: Any, past_key_values: Any, use_cache: bool, **_: Any) -> Any:
        if self.forwards == self.fails_at:
            raise RuntimeError("no such layer")
        assert (past_key_values is None) == (self.forwards == 0)
        assert input_ids.shape[1] == 1 or self.forwards == 0
        self.inference.append(torch.is_inference_mode_enabled())
        self.forwards += 1
        ids = torch.arange(VOCABULARY, device=input_ids.device)
        logits = (ids == (input_ids[..., None] * 7 + 3) % VOCABULARY).float()
        return SimpleNamespace(logits=logits, past_key_values=self.forwards, cache=self.forwards)


class RenamedModel(Model):
    """As transformers has them since it speaks of `cache`."""

    def __call__(self, input_ids: Any, cache: Any, use_cache: bool, **rest: Any) -> Any:
        return super().__call__(input_ids, cache, use_cache, **rest)


def want(first: int, count: int) -> list[int]:
    ids = [first]
    for _ in range(count):
        ids.append((ids[-1] * 7 + 3) % VOCABULARY)
    return ids[1:]


@pytest.fixture
def outputs() -> Iterator[AsyncOutputExecutor]:
    with AsyncOutputExecutor(CpuPlatform()) as made:
        yield made


def stream(model: Any, outputs: AsyncOutputExecutor, **options: Any) -> Iterator[StepIds]:
    options.setdefault("max_new_tokens", 6)
    return stream_tokens(model, torch.tensor([[9, 5], [9, 11]]), outputs, **options)


@pytest.mark.parametrize("kind", [Model, RenamedModel])
def test_each_step_is_given_once_and_in_order(
    outputs: AsyncOutputExecutor, kind: type[Model]
) -> None:
    model = kind()
    steps = list(stream(model, outputs))
    assert [*zip(*steps, strict=True)] == [tuple(want(5, 6)), tuple(want(11, 6))]
    assert model.forwards == 6
    assert model.inference == [True] * 6


def forwards_at_each_step(outputs: AsyncOutputExecutor) -> list[int]:
    model = Model()
    return [model.forwards for _ in stream(model, outputs)]


def test_the_next_forward_is_enqueued_before_a_step_is_read(
    outputs: AsyncOutputExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forwards_at_each_step(outputs) == [2, 3, 4, 5, 6, 6]

    def without_lag(self: TokenStreamer, tokens: torch.Tensor) -> StepIds:
        return self._given(self._outputs.submit(tokens))

    monkeypatch.setattr(TokenStreamer, "put", without_lag)
    assert forwards_at_each_step(outputs) == [1, 2, 3, 4, 5, 6]


def test_a_row_that_has_stopped_says_nothing_more(outputs: AsyncOutputExecutor) -> None:
    left, right = want(5, 6), want(11, 6)
    model = Model()
    steps = list(stream(model, outputs, stop_ids={left[1], right[3]}))
    assert [step[0] for step in steps] == [*left[:2], None, None]
    assert [step[1] for step in steps] == right[:4]
    assert model.forwards == 5  # one more than was wanted, whose ids are thrown away


def test_a_stop_in_the_last_step_is_a_stop(outputs: AsyncOutputExecutor) -> None:
    steps = list(stream(Model(), outputs, stop_ids={want(5, 6)[5], want(11, 6)[5]}))
    assert steps[-1] == [want(5, 6)[5], want(11, 6)[5]]
    assert len(steps) == 6


def test_leaving_the_loop_gives_up_what_is_on_its_way(
    outputs: AsyncOutputExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[OutputFuture] = []
    monkeypatch.setattr(OutputFuture, "cancel", lambda self: given_up.append(self) or True)
    model = Model()
    steps = stream(model, outputs)
    assert next(steps) == [want(5, 1)[0], want(11, 1)[0]]
    steps.close()  # type: ignore[attr-defined]
    assert model.forwards == 2
    assert len(given_up) == 1
    outputs.drain(60)
    assert outputs.stats().pending == 0


def test_an_error_of_the_model_is_raised_where_it_is(outputs: AsyncOutputExecutor) -> None:
    steps = stream(Model(fails_at=2), outputs)
    assert next(steps) == [want(5, 1)[0], want(11, 1)[0]]
    with pytest.raises(RuntimeError, match="no such layer"):
        next(steps)
    outputs.drain(60)
    assert outputs.stats().pending == 0


def test_no_steps_are_refused_before_anything_runs(outputs: AsyncOutputExecutor) -> None:
    model = Model()
    with pytest.raises(ValueError, match="max_new_tokens must be positive, not 0"):
        stream(model, outputs, max_new_tokens=0)
    assert model.forwards == 0


def on_a_device(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        ids = torch.tensor([[5], [11]]).to(NAME)
        steps = list(stream_tokens(Model(), ids, outputs, max_new_tokens=4))
    assert [*zip(*steps, strict=True)] == [tuple(want(5, 4)), tuple(want(11, 4))], "CORRUPT"


def test_ids_are_right_under_every_schedule(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sim.explore(lambda: on_a_device(sim))
    assert found.ok, str(found)
    # The bug: the host reads the ids before the device has written them.
    monkeypatch.setattr(type(sim.platform), "synchronize_event", lambda *_: True)
    assert not sim.explore(lambda: on_a_device(sim)).ok
