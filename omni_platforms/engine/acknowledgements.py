"""Drops that a worker has been told of and has not acknowledged yet. Pure, as the ledger is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omni_platforms.engine.ledger_records import Effects, Future, Outcome, again


@dataclass(eq=False)
class _Drop:
    """One call of `drop`: done when every output that it waits for is acknowledged."""

    asked: str
    future: Future
    left: set[str]


class Acknowledgements:
    """Who waits for which acknowledgement. One thread at a time may call it."""

    def __init__(self) -> None:
        self._drops: list[_Drop] = []

    def __len__(self) -> int:
        return len(self._drops)

    def find(self, any_id: str) -> Future | None:
        """Return the future of a drop that is under way and covers this id."""
        for drop in self._drops:
            if any_id == drop.asked or any_id in drop.left:
                return drop.future
        return None

    def under(self, batch_id: str) -> set[str]:
        """Return the outputs of a batch whose drops are under way."""
        prefix = batch_id + "/"
        return {i for drop in self._drops for i in drop.left if i.startswith(prefix)}

    def expect(self, asked: str, ids: set[str], effects: Effects) -> None:
        """Enter a drop of `ids`; its future is done at once where there are none."""
        effects.acknowledged = future = Future()
        if ids:
            self._drops.append(_Drop(asked, future, ids))
        else:
            effects.settle.append((future, Outcome(True)))

    def enter(self, ids: Iterable[str], effects: Effects) -> None:
        """Enter a worker's acknowledgement."""
        acknowledged = set(ids)
        for drop in list(self._drops):
            drop.left -= acknowledged
            if not drop.left:
                self._drops.remove(drop)
                effects.settle.append((drop.future, Outcome(True)))

    def fail(self, error: BaseException, effects: Effects) -> None:
        """No acknowledgement will come any more."""
        effects.settle += [(drop.future, Outcome(error=again(error))) for drop in self._drops]
        self._drops.clear()

    def left(self) -> Iterator[str]:
        """Yield the ids that are not acknowledged."""
        for drop in self._drops:
            yield from sorted(drop.left)
