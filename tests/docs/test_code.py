"""Every block of Python in the documentation runs, on the CPU or on a simulated device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omni_platforms import MultiprocExecutor, reset_platform, set_current_platform
from omni_platforms.simulator import Simulation
from tests.docs.pages import (
    PAGES,
    ROOT,
    found_blocks,
    has_code,
    inside,
    name_of,
    run,
    shown_blocks,
    wants_a_device,
)

WITH_CODE = [page for page in PAGES if has_code(page)]
ON_THE_CPU = [page for page in WITH_CODE if not wants_a_device(page)]
ON_A_DEVICE = [page for page in WITH_CODE if wants_a_device(page)]
# One worker process serves all pages that need only some executor.
_in_one_process = pytest.mark.xdist_group("documentation")


@pytest.fixture(scope="module")
def shared_executor() -> Iterator[Callable[[], MultiprocExecutor]]:
    """An executor with the worker of `examples/tiny_diffusion.py`, started when first asked for."""
    made: list[MultiprocExecutor] = []

    def executor() -> MultiprocExecutor:
        if not made:
            worker = f"{ROOT / 'examples' / 'tiny_diffusion.py'}:Worker"
            made.append(MultiprocExecutor(worker, platform="cpu", config={"side": 64}))
        return made[0]

    yield executor
    for each in made:
        each.shutdown()


@_in_one_process
@pytest.mark.parametrize("page", ON_THE_CPU, ids=name_of)
def test_the_code_runs_on_the_cpu(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared_executor: Callable[[], MultiprocExecutor],
) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    reset_platform()
    try:
        with inside(tmp_path):
            left_out = list(run(page, a_running_executor=shared_executor))
    finally:
        reset_platform()
    assert all("not run" in reason for reason in left_out)


@_in_one_process
@pytest.mark.parametrize("page", ON_A_DEVICE, ids=name_of)
def test_the_code_runs_on_a_simulated_device(page: Path, tmp_path: Path, sim: Simulation) -> None:
    set_current_platform(sim.platform)
    try:
        with inside(tmp_path):
            left_out = list(run(page))
    finally:
        reset_platform()
    assert all("not run" in reason for reason in left_out)


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_no_block_is_passed_over(page: Path) -> None:
    assert found_blocks(page) == shown_blocks(page)


def page_of(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_a_block_that_is_wrong_would_be_seen(tmp_path: Path) -> None:
    page = page_of(tmp_path, "Text\n\n```python\ntwo = 2\n```\n\n```python\nassert two == 3\n```\n")
    with pytest.raises(AssertionError):
        list(run(page))


def test_a_block_that_nobody_runs_would_be_seen(tmp_path: Path) -> None:
    page = page_of(tmp_path, "Text\n\n```{code-block} python\nassert 2 == 3\n```\n")
    assert list(run(page)) == []
    assert found_blocks(page) != shown_blocks(page)


def test_a_block_that_is_left_out_has_a_reason(tmp_path: Path) -> None:
    text = '<!--- skip: next "needs a compiler; not run" --->\n\n```python\nassert False\n```\n'
    page = page_of(tmp_path, text)
    assert list(run(page)) == ["needs a compiler; not run"]
    assert found_blocks(page) == shown_blocks(page) == 1


def test_a_file_can_be_imported_by_the_next_block(tmp_path: Path) -> None:
    file = "```python\n# given.py\nGIVEN = 7\n```\n"
    use = "```python\nimport given\n\nassert given.GIVEN == 7\n```\n"
    with inside(tmp_path):
        assert list(run(page_of(tmp_path, f"{file}\n{use}"))) == []
        assert "given" in sys.modules
    assert "given" not in sys.modules
