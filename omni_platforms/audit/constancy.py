"""Is what a site reads the same at every step? Pure bookkeeping, bounded for each site."""

from __future__ import annotations

from typing import Any

UNKNOWN = object()
"""The token of a read whose value was not looked at; its site is never called constant."""

_SHOWN = 4


class Constancy:
    """Compares the values that one site read in each step with those of the request's first step.

    `add` takes the number of the step (from 1; 0 is outside all steps), the
    request that the step belongs to, a token that is equal for equal values,
    and the value: a number, or an object whose `show()` says it.
    """

    __slots__ = (
        "_constant",
        "_count",
        "_digest",
        "_reference",
        "_request",
        "_step",
        "largest",
        "repeated",
        "shown",
        "steps",
    )

    def __init__(self) -> None:
        self._step = 0
        self._request: Any = None
        self._count = 0
        self._digest = 0
        self._reference: dict[Any, tuple[int, int]] = {}
        self._constant = True
        self.steps = 0
        self.largest = 0
        """The most reads in one step."""
        self.repeated = 0
        """In how many steps it read more than once."""
        self.shown: list[Any] = []

    def add(self, step: int, request: Any, token: Any, value: Any) -> None:
        """Take one read. Steps come in rising order."""
        if not step:
            return
        if step != self._step:
            self.close()
            self._step, self._request = step, request
        self._count += 1
        if token is UNKNOWN:
            self._constant = False
        elif self._constant:
            self._digest = hash((self._digest, token))
            if not self.steps and len(self.shown) < _SHOWN:
                self.shown.append(value.show() if hasattr(value, "show") else value)

    def close(self) -> None:
        """End the step that the last read belonged to. May be called again."""
        if not self._step:
            return
        self.steps += 1
        self.largest = max(self.largest, self._count)
        self.repeated += self._count > 1
        seen = (self._count, self._digest)
        if self._reference.setdefault(self._request, seen) != seen:
            self._constant = False
            self._reference.clear()
        self._step = self._count = self._digest = 0

    def is_constant(self, steps: int, requests: int) -> bool:
        """Whether all of `steps` steps of `requests` requests were read, alike in each request.

        Never where each request had one step: then nothing was compared.
        """
        return self._constant and self.steps == steps > requests >= 1
