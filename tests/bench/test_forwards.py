"""Forwards of a chosen length, and the reading of what they wrote."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench.check import Pattern
from omni_platforms.bench.forwards import Forward, Request, Work
from omni_platforms.bench.reading import PAGE_WORDS, PatternReader
from omni_platforms.errors import BenchError
from omni_platforms.platform.cpu import CpuPlatform

HERE = torch.device("cpu")
SIZE = 4 * (3 * PAGE_WORDS + 10)
WORK = Work("tiny", 1)


def request(number: int = 7, nbytes: int = SIZE) -> Request:
    return Request(number, WORK, nbytes)


def output(number: int = 7, nbytes: int = SIZE) -> torch.Tensor:
    return Forward(CpuPlatform(), HERE)(request(number, nbytes))


def test_an_output_is_the_pattern_of_its_number() -> None:
    forward = Forward(CpuPlatform(), HERE)
    for number in (0, 1, 12345):
        Pattern(SIZE).check(forward(request(number)), number, "a forward")
    forward.forget()
    Pattern(8).check(forward(request(3, 8)), 3, "a forward")


@pytest.mark.parametrize("kind", ["large", "tiny"])
def test_both_kinds_compute(kind: str) -> None:
    forward = Forward(CpuPlatform(), HERE)
    assert forward.seconds_for(Work(kind, 3, 16)) > 0  # type: ignore[arg-type]


class Clocked(Forward):
    """A forward on a device whose kernels take a known time, behind a fixed cost a call."""

    def __init__(self, kernel_s: float, call_s: float) -> None:
        super().__init__(CpuPlatform(), HERE)
        self._costs = kernel_s, call_s

    def seconds_for(self, work: Work) -> float:
        kernel_s, call_s = self._costs
        return call_s + work.count * kernel_s


@given(
    st.sampled_from(["large", "tiny"]),
    st.floats(1e-6, 4e-4),
    st.floats(0, 1e-4),
    st.sampled_from([0.002, 0.01, 0.04]),
)
def test_calibrated_work_takes_the_time_that_was_asked_for(
    kind: str, kernel_s: float, call_s: float, seconds: float
) -> None:
    forward = Clocked(kernel_s, call_s)
    work = forward.calibrated(kind, seconds)  # type: ignore[arg-type]
    one = forward.seconds_for(Work(work.kind, work.count + 1, work.side)) - forward.seconds_for(
        work
    )
    assert abs(forward.seconds_for(work) - seconds) <= max(0.05 * seconds, one)


def test_work_is_one_kernel_where_that_is_too_long_already() -> None:
    assert Clocked(1.0, 0).calibrated("large", 0.002).count == 1


# Reading -------------------------------------------------------------------------


def test_a_right_output_is_read_and_checked_once() -> None:
    reader = PatternReader("a way")
    for number in (1, 2):
        reader.read(output(number), request(number))
    reader.check_last()
    with pytest.raises(BenchError, match="a way: no output arrived"):
        reader.check_last()


@pytest.mark.parametrize("place", [0, PAGE_WORDS, 3 * PAGE_WORDS, SIZE // 4 - 1])
def test_a_wrong_page_is_seen_inside_the_clock(place: int) -> None:
    wrong = output()
    wrong[place] += 1
    with pytest.raises(BenchError, match="output 7"):
        PatternReader("a way").read(wrong, request())


def test_a_wrong_byte_between_is_seen_outside() -> None:
    wrong = output()
    wrong[PAGE_WORDS + 1] += 1
    reader = PatternReader("a way")
    reader.read(wrong, request())
    with pytest.raises(BenchError, match=f"byte {4 * (PAGE_WORDS + 1)}"):
        reader.check_last()


@pytest.mark.parametrize("wrong", [output(6), output(7)[:-1], torch.zeros(SIZE // 4).int()])
def test_the_output_of_another_request_is_seen_at_once(wrong: torch.Tensor) -> None:
    with pytest.raises(BenchError, match="output 7"):
        PatternReader("a way").read(wrong, request())
