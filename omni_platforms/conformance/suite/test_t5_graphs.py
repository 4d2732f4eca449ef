"""T5: graphs: seeing a capture, staying out of it, and handing over what replays write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from omni_platforms.conformance.marks import needs, remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS, Rig, in_thread
from omni_platforms.errors import CaptureError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

pytestmark = [tier("T5"), needs(Capability.GRAPH_CAPTURE)]


def new_graph(rig: Rig) -> Any:
    """Return an empty graph: torch's generic one (torch 2.12), or one of the vendor's class."""
    if _has_generic_graphs():
        return torch.accelerator.Graph()
    names = (f"{rig.device.type.upper()}Graph", "Graph")
    found = [getattr(rig.module, name) for name in names if hasattr(rig.module, name)]
    assert found, f"torch.{rig.device.type} has no class of graphs; do not declare graph_capture"
    return found[0]()


def _has_generic_graphs() -> bool:
    """Whether a generic graph can be entered: that synchronizes, which MUSA's guard cannot."""
    try:
        torch.accelerator.synchronize()
    except RuntimeError:
        return False
    return hasattr(torch.accelerator, "Graph")


@contextlib.contextmanager
def capturing(rig: Rig, graph: Any) -> Iterator[None]:
    """Capture `graph` inside a `with` block, on a side stream."""
    torch.zeros(1, device=rig.device).add_(1)  # load the kernel: a capture is no place for that
    rig.finish()
    if hasattr(graph, "__enter__"):
        with rig.entered(torch.Stream(device=rig.device)), graph:
            yield
    else:
        with rig.module.graph(graph):
            yield


@remedy("Ask about the calling thread's current stream; answer False before the device is used.")
def test_is_capturing_sees_a_capture_of_this_stream(rig: Rig, platform: OmniPlatform) -> None:
    """`is_capturing()` is true inside a capture, and false outside it and on other threads."""
    static = torch.zeros(64, device=rig.device)
    seen = [platform.is_capturing()]
    with capturing(rig, new_graph(rig)):
        static.add_(1)
        seen += [platform.is_capturing(), platform.is_capturing(0)]
        elsewhere = in_thread(platform.is_capturing)
    assert [*seen, platform.is_capturing()] == [False, True, True, False]
    assert elsewhere is False


@remedy("is_capturing() must see it before the executor makes a call that breaks the capture.")
def test_submit_during_a_capture_is_refused(rig: Rig, platform: OmniPlatform) -> None:
    """`submit()` while the calling stream captures raises `CaptureError`; the capture goes on."""
    static, graph = torch.zeros(64, device=rig.device), new_graph(rig)
    with AsyncOutputExecutor(platform) as outputs:
        outputs.submit(static, borrow=True).result(DEADLINE_SECONDS)
        with capturing(rig, graph):
            static.add_(1)
            with pytest.raises(CaptureError):
                outputs.submit(static)
    graph.replay()
    assert static.eq(1).all()


@needs(Capability.DEVICE_EVENTS, Capability.SIDE_STREAMS, Capability.PINNED_MEMORY)
@remedy("The snapshot of the static output must be ordered between two replays: see T2.")
def test_each_replay_gives_its_own_output(rig: Rig, platform: OmniPlatform) -> None:
    """Outputs of a graph, submitted with `borrow=True`, are those of their own replay."""

    def scenario() -> None:
        static = torch.zeros(20_000, device=rig.device)
        graph = new_graph(rig)
        with capturing(rig, graph):
            static.add_(1)
        with AsyncOutputExecutor(platform) as outputs:
            futures = []
            for _ in range(3):
                graph.replay()
                futures.append(outputs.submit(static, borrow=True))
            results = [future.result(DEADLINE_SECONDS) for future in futures]
        assert all(result.eq(step).all() for step, result in enumerate(results, start=1))

    rig.check(scenario)
