"""The operators of torch's own test-suite (OpInfo), run on the CPU and on the simulated device."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_map

from omni_platforms.errors import SimulatedFaultError

D = "sim"
Function = Callable[..., Any]
_MANY = 400
OTHER_TYPES = (torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.float64)


@cache
def operators() -> dict[str, Any]:
    """Return torch's operators with sample inputs, by name; importing them takes seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


def main_type(op: Any) -> torch.dtype | None:
    """Return the type that most of the samples use; `None` for an operator without CPU types."""
    preferred = [torch.float32, torch.complex64, torch.int64]
    return next((t for t in preferred if t in op.dtypes), next(iter(op.dtypes), None))


def samples(op: Any, dtype: torch.dtype, at_most: int | None = None, **how: Any) -> list[Any]:
    """Return sample inputs on the CPU, the same ones each time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(itertools.islice(op.sample_inputs("cpu", dtype, **how), at_most))


def all_samples(op: Any) -> Iterator[Any]:
    """Yield the samples of the main type, and two of each other common one.

    Two operators have thousands: of those, every n-th one.
    """
    first = main_type(op)
    if first is None:
        return
    found = samples(op, first)
    yield from found[:: 1 + len(found) // _MANY]
    for dtype in OTHER_TYPES:
        if dtype != first and dtype in op.dtypes:
            yield from samples(op, dtype, 2)


class ToDevice:
    """Moves one sample to the device: layouts, shared storages and views stay what they are."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return torch.device(D)
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided:
            return value.to(D)
        made = self._strided(value.detach())
        return made.requires_grad_(value.requires_grad)

    def _strided(self, value: torch.Tensor) -> torch.Tensor:
        made = torch.empty(0, dtype=value.dtype, device=D)
        storage = self._storage(value.untyped_storage())
        made.set_(storage, value.storage_offset(), value.size(), value.stride())
        made = torch._conj(made) if value.is_conj() else made
        return torch._neg_view(made) if value.is_neg() else made

    def _storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        key = storage._cdata
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = flat.to(D).untyped_storage()
        return self._storages[key]


@dataclass
class Arguments:
    """The arguments of one call, copied so that the call may write to them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, sample: Any, device: str) -> Arguments:
        """Return the arguments of an OpInfo sample, on the CPU or on the device."""
        everything = ((sample.input, *sample.args), sample.kwargs)
        with torch.no_grad():
            return cls(*tree_map(ToDevice() if device == D else _copied, everything))


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout != torch.strided:
        return value.clone()
    flat = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).clone()
    made = torch.empty(0, dtype=value.dtype)
    made.set_(flat.untyped_storage(), value.storage_offset(), value.size(), value.stride())
    made = torch._conj(made) if value.is_conj() else made
    made = torch._neg_view(made) if value.is_neg() else made
    return made.requires_grad_(value.requires_grad)


@dataclass
class Outcome:
    """What became of one call: its results and its arguments afterwards, or its error."""

    results: list[Any]
    arguments: list[Any]
    error: Exception | None = None

    @classmethod
    def of(cls, function: Function, arguments: Arguments) -> Outcome:
        """Call `function` and wait for its results."""
        try:
            results = tree_flatten(function(*arguments.args, **arguments.kwargs))[0]
            after = tree_flatten((arguments.args, arguments.kwargs))[0]
            return cls([_on_host(x) for x in results], [_on_host(x) for x in after])
        except Exception as error:  # noqa: BLE001 - the CPU's outcome may be an error too
            return cls([], [], error)


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


@dataclass(frozen=True)
class Case:
    """One call to compare: the sample's arguments given to `function`."""

    label: str
    function: Function
    sample: Any

    def outcome(self, device: str, seeds_from: int = 0) -> Outcome:
        """Run it on the CPU or on the device, with torch seeded; OpInfo seeds some itself."""
        arguments = Arguments.of(self.sample, device)
        seed = torch.manual_seed
        with mock.patch.object(torch, "manual_seed", lambda number: seed(number + seeds_from)):
            torch.manual_seed(7)
            return Outcome.of(self.function, arguments)

    def difference(self, kind: str = "") -> Difference:
        """Run it on both. `kind` is that of `Allowed`, or "" for an operator without an entry."""
        want = self.outcome("cpu")
        try:
            got = self.outcome(D)
        except Exception as error:  # noqa: BLE001 - moving the sample to the device failed
            got = Outcome([], [], error)
        found = _compare(want, got, values=True)
        if kind == "undefined" or (kind == "random" and self._depends_on_seed(want)):
            return Difference(_compare(want, got, values=False), excused=bool(found))
        return Difference(found)

    def _depends_on_seed(self, want: Outcome) -> bool:
        return any(_compare(want, self.outcome("cpu", number)) for number in range(1, 6))


@dataclass(frozen=True)
class Difference:
    """How the outcomes differ ("": they agree), and whether values that differ were excused."""

    text: str
    excused: bool = False


def _compare(want: Outcome, got: Outcome, values: bool = True) -> str:
    """Without `values` only the numbers of results, shapes and types must agree."""
    if want.error is not None or got.error is not None:
        return _differ_in_error(want.error, got.error)
    found = _differ(want.results, got.results, values, "result")
    return found or _differ(want.arguments, got.arguments, values, "argument")


def _differ_in_error(want: Exception | None, got: Exception | None) -> str:
    if want is not None and got is not None and not isinstance(got, SimulatedFaultError):
        return ""
    return f"CPU: {want!r}; device: {got!r}"


def _differ(want: list[Any], got: list[Any], values: bool, what: str) -> str:
    if len(want) != len(got):
        return f"{len(want)} {what}s on the CPU, {len(got)} on the device"
    for place, (a, b) in enumerate(zip(want, got, strict=True)):
        found = _differ_in_one(a, b, values)
        if found:
            return f"{what} {place}: {found}"
    return ""


def _differ_in_one(want: Any, got: Any, values: bool) -> str:
    if not isinstance(want, torch.Tensor):
        return _differ_in_object(want, got)
    if not isinstance(got, torch.Tensor):
        return f"{got!r} is no tensor"
    if (want.size(), want.dtype) != (got.size(), got.dtype):
        return f"{want.dtype} {tuple(want.size())} became {got.dtype} {tuple(got.size())}"
    if not values:
        return ""
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def _differ_in_object(want: Any, got: Any) -> str:
    if isinstance(want, (torch.device, torch.Generator, str)) or want is None:
        return ""
    if isinstance(want, (bool, int, float, complex, torch.dtype)):
        same = want == got or (want != want and got != got)
        return "" if same else f"{want!r} became {got!r}"
    return ""
