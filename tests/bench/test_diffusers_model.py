"""`--model diffusers`: its checksum, its reader, and a run where the extra is installed."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench import diffusers_model
from omni_platforms.bench.diffusers_model import ChecksumReader, checksum
from omni_platforms.bench.forwards import Request, Work
from omni_platforms.cli import main
from omni_platforms.errors import BenchError

SIDE = 40
REQUEST = Request(5, Work("large", 1), 3 * SIDE * SIDE * 4)
MISSING = [name for name in ("diffusers", "transformers") if importlib.util.find_spec(name) is None]
PICTURE = torch.rand(3, SIDE, SIDE)


def output(picture: torch.Tensor = PICTURE, number: int = REQUEST.number) -> dict[str, Any]:
    return {"picture": picture.clone(), "checksum": checksum(picture) + number}


def read(found: dict[str, Any]) -> None:
    reader = ChecksumReader("a way")
    reader.read(found, REQUEST)
    reader.check_last()


@given(st.integers(0, PICTURE.nbytes - 1), st.integers(1, 255))
def test_any_changed_byte_is_seen(place: int, change: int) -> None:
    found = output()
    read(found)
    found["picture"].view(-1).view(torch.uint8)[place] ^= change
    with pytest.raises(BenchError, match="a way: picture 5 holds other bytes"):
        read(found)


@given(st.integers(0, PICTURE.numel() - 2))
def test_bytes_that_changed_places_are_seen(place: int) -> None:
    found = output()
    flat = found["picture"].view(-1)
    flat[place : place + 2] = flat[place : place + 2].flip(0)
    changed = not torch.equal(found["picture"], PICTURE)
    assert (checksum(found["picture"]) != checksum(PICTURE)) == changed


def test_the_picture_of_another_request_is_seen() -> None:
    with pytest.raises(BenchError, match="picture 5"):
        read(output(number=4))
    with pytest.raises(BenchError, match="instead of"):
        read(output(PICTURE[:, 1:]))
    with pytest.raises(BenchError, match="no output arrived"):
        ChecksumReader("a way").check_last()


@pytest.mark.parametrize("names", [(), ("submit",)])
def test_a_missing_extra_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    monkeypatch.setattr(diffusers_model, "find_spec", lambda name: None)
    done = CliRunner().invoke(main, ["bench", *names, "--model", "diffusers"])
    assert done.exit_code == 1
    assert done.stderr.strip().splitlines()[-1].endswith("pip install 'omni-platforms[diffusers]'")
    assert "submit:" not in done.stderr


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    bool(MISSING), reason=f"models: {' and '.join(MISSING)} missing; pip install --group models"
)
def test_a_real_pipeline_runs_by_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    words = ["bench", "--model", "diffusers", "--quick", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {row["benchmark"] for row in rows} == {"diffusers"}
    assert {row["case"]["pixels"] for row in rows} == {64}
    queued = [row for row in rows if row["case"]["in_flight"] == 8]
    assert [row["way"] for row in queued] == [
        "forwards alone",
        "blocking .cpu()",
        "AsyncOutputExecutor",
        "forwards alone, in the worker",
        "blocking .cpu() in the worker",
        "MultiprocExecutor",
    ]
    assert len(rows) == len(queued) + 4
