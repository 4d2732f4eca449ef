"""Token ids of a causal language model that reach the host one step later, behind the next forward.

Nothing here imports the transformers library: whatever is called as its causal models are,
and returns what they return, will do. `generate(streamer=...)` of transformers 5.24.0 copies the
ids with `.cpu()` in each step and asks the device whether all rows have ended (`StopCheck` in
its generation/utils.py), so no streamer can spare it a wait: the loop is here instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

import torch

from omni_platforms.outputs.executor import AsyncOutputExecutor
from omni_platforms.outputs.future import OutputFuture

StepIds: TypeAlias = "list[int | None]"
"""The id of each row in one step; `None` for a row that had ended before."""


class TokenStreamer:
    """Takes the ids of each step on the device, and gives those of the step before.

    Parameters:
        outputs: the executor that brings them to the host; it stays yours to close.
        stop_ids: ids that end a row. The stop id itself is still given.

    A stop is seen one step late, when the next forward is enqueued already: the ids of that
    forward are thrown away. Call it from one thread.
    """

    def __init__(self, outputs: AsyncOutputExecutor, stop_ids: Collection[int] = ()) -> None:
        self._outputs = outputs
        self._stop_ids = frozenset(stop_ids)
        self._last: OutputFuture | None = None
        self._ended: list[bool] | None = None

    @property
    def finished(self) -> bool:
        """Whether every row has ended, as far as ids have been given."""
        return self._ended is not None and all(self._ended)

    def put(self, tokens: torch.Tensor) -> StepIds | None:
        """Hand over the ids `[rows]` of this step; return those of the step before.

        `None` at the first step. Waits for the step before, which is over, or nearly, when this
        one's kernels are enqueued. `tokens` must not be written afterwards. Raises what
        `AsyncOutputExecutor.submit` and `OutputFuture.result` raise.
        """
        before, self._last = self._last, self._outputs.submit(tokens)
        return None if before is None else self._given(before)

    def end(self) -> StepIds | None:
        """Return the ids of the last step, or `None` where they are not wanted or there are none.

        They are not wanted when every row had ended before. Waits as `put`.
        """
        last, self._last = self._last, None
        if last is None:
            return None
        if self.finished:
            last.cancel()
            return None
        return self._given(last)

    def cancel(self) -> None:
        """Give up what is on its way. Does not wait; its memory is freed when it is copied."""
        last, self._last = self._last, None
        if last is not None:
            last.cancel()

    def _given(self, future: OutputFuture) -> StepIds:
        ids: list[int] = future.result().tolist()
        ended = self._ended or [False] * len(ids)
        self._ended = [was or id in self._stop_ids for was, id in zip(ended, ids, strict=True)]
        return [None if was else id for was, id in zip(ended, ids, strict=True)]


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """Return the likeliest id of each row, `[rows]`, of logits `[rows, vocabulary]`."""
    return logits.argmax(-1)


def stream_tokens(
    model: Any,
    input_ids: torch.Tensor,
    outputs: AsyncOutputExecutor,
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    attention_mask: torch.Tensor | None = None,
    choose: Callable[[torch.Tensor], torch.Tensor] = greedy,
) -> Iterator[StepIds]:
    """Generate ids and yield those of each step, while the device computes the next one.

    `input_ids` is `[rows, length]` on the model's device; prompts of different lengths are padded
    on the left, with zeros in an `attention_mask` of the same shape. `choose` makes the ids
    `[rows]` of the logits `[rows, vocabulary]`, on the device: `greedy`, or a sampler of yours.

    Ends after `max_new_tokens` steps, or when every row had one of `stop_ids`. To cancel, leave
    the loop, or close the iterator: what is on its way is given up then. Each step runs on the
    thread that asks for it, in `torch.inference_mode`. Raises `ValueError` for a `max_new_tokens`
    that is not positive, what the model raises, and what `TokenStreamer.put` raises.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be positive, not {max_new_tokens}")
    return _steps(model, input_ids, attention_mask, choose, max_new_tokens, outputs, stop_ids)


def _steps(
    model: Any,
    tokens: torch.Tensor,
    mask: torch.Tensor | None,
    choose: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    outputs: AsyncOutputExecutor,
    stop_ids: Collection[int],
) -> Iterator[StepIds]:
    streamer = TokenStreamer(outputs, stop_ids)
    cache_name, cache = _name_of_cache(model), None
    try:
        for _ in range(count):
            with torch.inference_mode():  # not around a yield: it is the whole thread's
                known = {cache_name: cache, **_padding(mask, tokens)}
                made = model(input_ids=tokens, use_cache=True, **known)
                cache, tokens = getattr(made, cache_name), choose(made.logits[:, -1])[:, None]
                if mask is not None:
                    mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            before = streamer.put(tokens[:, 0])
            if before is not None:
                yield before
            if streamer.finished:
                return
        last = streamer.end()
        if last is not None:
            yield last
    finally:
        streamer.cancel()


def _name_of_cache(model: Any) -> str:
    """Return what the model calls the keys and values of earlier tokens: transformers renamed it.

    `past_key_values` still works in 5.24.0, with a warning that it will be gone in 5.40.0.
    """
    parameters = inspect.signature(getattr(model, "forward", model)).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def _padding(mask: torch.Tensor | None, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what a model has to know of padding: the mask, and the tokens' places without it."""
    if mask is None:
        return {}
    places = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return {"attention_mask": mask, "position_ids": places[:, -tokens.shape[1] :]}
