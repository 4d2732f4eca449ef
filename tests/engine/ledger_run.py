"""Runs a ledger through one order of events, and says what each event must have come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

from omni_platforms.engine.ledger import Ledger
from omni_platforms.engine.ledger_records import Effects, Outcome
from omni_platforms.errors import EngineError, OutputDroppedError

Event = tuple[str, Any]
NEVER = 1 << 30
CAUSE, REFUSED = RuntimeError("the worker was killed"), ValueError("a bad request")
# Everybody gets a copy of an error: they are compared as text.
DROPPED = "dropped"


class Promise:
    """A future that remembers how often it was settled."""

    def __init__(self, output_id: str = "") -> None:
        self.id = output_id
        self.outcomes: list[Outcome] = []
        self.cancelled = False


class Run:
    """One batch of `size` outputs in a ledger, and everything that came out of it."""

    def __init__(self, size: int, make_ledger: Callable[..., Ledger] = Ledger) -> None:
        self.ledger = make_ledger(Promise)
        self.size = size
        self.computing = Promise("b")
        self.waits: dict[int, Promise | BaseException] = {}
        self.gone: Counter[Any] = Counter()
        self.acknowledgements: list[Promise] = []
        self.told: list[str] = []
        self.ledger.open("b", self.computing, batch=True)  # type: ignore[arg-type]

    def apply(self, event: Event) -> None:
        kind, member = event
        getattr(self, "_" + kind)(member)

    def finish(self) -> None:
        """Let the worker acknowledge what it was told, as it does in any case."""
        self._carry_out(self.ledger.dropped(self.told))

    def result(self, member: int) -> Any:
        """Return what waiting for a member came to: its value, its error, or `DROPPED`."""
        found = self.waits[member]
        if isinstance(found, Promise):
            assert len(found.outcomes) == 1, f"settled {len(found.outcomes)} times"
            value, error, _ = found.outcomes[0]
            found = error if error is not None else value
        if isinstance(found, OutputDroppedError):
            return DROPPED
        return repr(found) if isinstance(found, BaseException) else found

    def _carry_out(self, effects: Effects) -> None:
        for future, outcome in effects.settle:
            promise: Any = future
            if isinstance(promise, Promise):
                promise.outcomes.append(outcome)
                if promise.id != "b":
                    self.gone[outcome.value] += 1
            else:
                promise.set_result(outcome.value)
        self.gone.update(effects.release)
        self.told += effects.tell

    def _computed(self, member: None) -> None:
        self._carry_out(self.ledger.compute_done("b", Outcome("handle")))

    def _refused(self, member: None) -> None:
        self._carry_out(self.ledger.compute_done("b", Outcome(error=REFUSED)))

    def _split(self, member: None) -> None:
        self._carry_out(self.ledger.register_split("b", map(str, range(self.size))))

    def _ready(self, member: int) -> None:
        self._carry_out(self.ledger.ready(f"b/{member}", Outcome(f"value {member}")))

    def _wait(self, member: int) -> None:
        try:
            future, effects = self.ledger.wait(f"b/{member}")
        except EngineError as error:
            self.waits[member] = error
        else:
            self.waits[member] = future  # type: ignore[assignment]
            self._carry_out(effects)

    def _drop(self, member: int) -> None:
        self._do_drop(f"b/{member}")

    def _cancel(self, member: int) -> None:
        found = self.waits.get(member)
        if isinstance(found, Promise) and not found.outcomes:
            found.cancelled = True
        self._do_drop(f"b/{member}")

    def _drop_all(self, member: None) -> None:
        self._do_drop("b")

    def _do_drop(self, any_id: str) -> None:
        effects = self.ledger.drop(any_id)
        self._carry_out(effects)
        if effects.acknowledged is not None and effects.tell:
            assert not effects.acknowledged.done(), "acknowledged before the worker answered"
        if effects.acknowledged is not None:
            self.acknowledgements.append(effects.acknowledged)  # type: ignore[arg-type]

    def _failure(self, member: None) -> None:
        effects = self.ledger.fail_all(CAUSE)
        for future, outcome in list(effects.settle):
            if not isinstance(future, Promise):  # an acknowledgement that will not come
                assert repr(outcome.error) == repr(CAUSE)
                future.set_exception(CAUSE)
                effects.settle.remove((future, outcome))
        self._carry_out(effects)


def orders(size: int, *extra: Event, compute: str = "computed") -> Iterator[Sequence[Event]]:
    """Yield every order of the events of a batch, but for the names of alike members."""
    events: list[Event] = [(compute, None), ("split", None), *extra]
    events += [(kind, member) for kind in ("ready", "wait") for member in range(size)]
    special = {member for _, member in extra if member is not None}
    alike = [events.index(("ready", m)) for m in range(size) if m not in special]
    for order in permutations(range(len(events))):
        places = [order.index(event) for event in alike]
        if places == sorted(places):
            yield [events[index] for index in order]


def check(size: int, order: Sequence[Event], make_ledger: Callable[..., Ledger] = Ledger) -> None:
    """Run one order; every output must end as `expected` says, once, with nothing left over."""
    run = Run(size, make_ledger)
    for event in order:
        run.apply(event)
    run.finish()
    at = {event: place for place, event in enumerate(order)}
    for member in range(size):
        assert run.result(member) in expected(member, at), f"output {member}"
        assert run.gone[f"value {member}"] == 1, "a value is delivered or let go, once"
    assert len(run.computing.outcomes) == 1, "COMPUTE_DONE is settled once"
    assert all(future.done() for future in run.acknowledgements)  # type: ignore[attr-defined]
    counts = run.ledger.counts()
    assert counts["closed"] <= size + 1
    assert not any(counts[kind] for kind in ("jobs", "outputs", "drops")), f"left over: {counts}"


def expected(member: int, at: dict[Event, int]) -> list[Any]:
    """Return what waiting for a member may come to, from the places of the events alone."""
    wait, ready = at["wait", member], at["ready", member]
    own = [at.get((kind, member), NEVER) for kind in ("drop", "cancel")]
    drop = min(*own, at.get(("drop_all", None), NEVER))
    failure = at.get(("failure", None), NEVER)
    refused = at.get(("refused", None), NEVER)
    if max(wait, ready) < min(drop, refused) and ready < failure:
        return [f"value {member}"]
    if refused < NEVER:
        return [repr(REFUSED)]
    if ready < failure or drop < failure:
        return [DROPPED]
    if drop < wait:  # dropped after it had failed, and before anybody heard of that
        return [repr(CAUSE), DROPPED]
    return [repr(CAUSE)]
