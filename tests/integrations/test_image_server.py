"""The image server over real sockets: previews, disconnects, failures of requests and workers."""

from __future__ import annotations

import base64
import gc
import http.client
import io
import json
import os
import runpy
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from omni_platforms.engine.asking import Asking
from omni_platforms.engine.executor import MultiprocExecutor
from tests.integrations.picture_worker import EXAMPLE, Worker

pytest.importorskip("fastapi", reason="server: fastapi is missing; pip install -e '.[server]'")
uvicorn = pytest.importorskip("uvicorn", reason="server: uvicorn is missing")

pytestmark = pytest.mark.xdist_group("image_server")
PATIENCE = 60.0
SIDE = 320  # pixels: a preview is large enough for a block of shared memory
Event = tuple[str, dict[str, Any]]


class Served:
    """A running server: its port, and the executor behind it."""

    def __init__(self, port: int, app: Any) -> None:
        self.port = port
        self.executor: MultiprocExecutor = app.state.executor

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ask(self, prompt: str = "hills", steps: int = 5, seed: int = 4) -> list[Event]:
        """Ask for a picture; return all events."""
        status, text = self.get(f"/pictures?prompt={prompt}&steps={steps}&seed={seed}")
        assert status == 200, text
        return events(text)

    def connect(self, prompt: str, steps: int) -> socket.socket:
        """Ask for a picture without reading anything."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.sendall(request_for(prompt, steps))
        return client

    def pending(self) -> int:
        return self.executor.stats().pending

    def slow_steps(self) -> int:
        (made,) = self.executor.collective_rpc("slow_steps", timeout=PATIENCE)
        return int(made)


def request_for(prompt: str, steps: int) -> bytes:
    path = f"/pictures?prompt={prompt}&steps={steps}"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def events(text: str) -> list[Event]:
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def pixels(event: Event) -> Any:
    return np.array(Image.open(io.BytesIO(base64.b64decode(event[1]["png"]))))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def read_until(client: socket.socket, words: bytes) -> None:
    got = b""
    while words not in got:
        more = client.recv(1 << 16)
        assert more, "the server hung up"
        got = got[-len(words) :] + more


@contextmanager
def serving() -> Iterator[Served]:
    make = runpy.run_path(str(EXAMPLE / "server.py"))["create_app"]
    worker = "tests.integrations.picture_worker:SlowWorker"
    app = make(worker=worker, platform="cpu", config={"side": SIDE})
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # a slow client fills it
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            yield Served(listener.getsockname()[1], app)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as made:
        yield made


def test_previews_come_and_then_the_picture(served: Served) -> None:
    got = served.ask("slow", steps=40)
    *previews, picture = got
    assert [name for name, _ in got] == ["preview"] * len(previews) + ["picture"]
    steps = [data["step"] for _, data in previews]
    assert steps == sorted(set(steps))
    assert len(steps) >= 2  # the others may be skipped
    assert {pixels(each).shape for each in previews} == {(SIDE // 4, SIDE // 4, 3)}

    worker = Worker(0, torch.device("cpu"), {"side": SIDE})
    want = worker.execute_model({"prompt": "slow", "steps": 40, "seed": 4})
    assert picture[1]["prompt"] == "slow"
    assert np.array_equal(pixels(picture), want["image"].numpy())
    assert want["image"].float().std() > 20


def test_the_page_is_there(served: Served) -> None:
    status, text = served.get("/")
    assert status == 200
    assert "new EventSource" in text


def test_a_bad_question_is_answered_as_such(served: Served) -> None:
    status, text = served.get("/pictures?prompt=hills&steps=0")
    assert status == 422
    assert "steps" in text


def test_a_request_that_fails_is_told_and_costs_nobody_else(served: Served) -> None:
    ((name, data),) = served.ask("bad")
    assert name == "failed"
    assert data == {"type": "ValueError", "message": "no such picture"}
    assert served.ask()[-1][0] == "picture"


def steps_of_an_abandoned_request(served: Served, steps: int) -> int:
    """Leave in the middle of a request; return how many steps its worker made all the same."""
    served.slow_steps()
    client = served.connect("slow", steps)
    read_until(client, b"event: preview")
    client.close()
    assert served.ask()[-1][0] == "picture"  # behind it, from the only worker
    return served.slow_steps()


def test_a_disconnect_ends_a_request_and_the_next_client_is_served(served: Served) -> None:
    dropped = served.executor.stats().dropped
    assert steps_of_an_abandoned_request(served, steps=1000) < 900
    assert served.executor.stats().dropped == dropped + 1
    assert served.pending() == 0


def test_a_server_that_gives_nothing_up_would_be_seen(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asking, "give_up", lambda *_: None)
    assert steps_of_an_abandoned_request(served, steps=40) == 40
    assert served.pending() == 1  # the picture that nobody will fetch
    monkeypatch.undo()
    (output,) = served.executor.describe_pending_state().outputs
    served.executor.drop_output(output.id)


def test_a_client_that_reads_nothing_holds_nobody_up(served: Served) -> None:
    steps = 60  # whose previews are more than small sockets hold
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", served.port))
        client.sendall(request_for("slow", steps))
        assert served.ask()[-1][0] == "picture"  # behind it, from the only worker
        assert served.pending() == 1  # computed, and not fetched
        read_until(client, b"event: picture")
    until(lambda: served.pending() == 0)


def test_whoever_leaves_the_queue_costs_those_in_front_nothing(served: Served) -> None:
    served.slow_steps()
    with served.connect("slow", 60) as first:
        read_until(first, b"event: preview")
        second = served.connect("slow", 1000)
        until(lambda: served.pending() == 2)
        second.close()
        until(lambda: served.pending() == 1)
        read_until(first, b"event: picture")
    assert served.slow_steps() <= 60 + 1


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is freed is freed at once: nobody waits for the collector of cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_nothing_stays_in_use_after_many_disconnects(served: Served) -> None:
    for _ in range(5):
        client = served.connect("slow", 1000)
        read_until(client, b"event: preview")
        client.close()
    until(lambda: served.pending() == 0)
    assert served.ask()[-1][0] == "picture"
    state = served.executor.describe_pending_state(PATIENCE)
    assert not state.outputs
    assert not state.unacknowledged
    # What is not in use can be given back: all of the one segment, or nothing.
    until(lambda: sum(served.executor.trim()) > 0)
    kept = served.executor.execute_stepwise({"prompt": "hills", "steps": 1, "seed": 0})
    picture = served.executor.wait_output_ready(kept.async_output_id).result(PATIENCE)["image"]
    assert sum(served.executor.trim()) == 0
    del picture


def test_a_dead_worker_is_told_to_clients_and_to_whoever_watches() -> None:
    with serving() as served:
        assert json.loads(served.get("/health")[1])["state"] == "running"
        (worker,) = served.executor.stats().workers
        client = served.connect("slow", 1000)
        read_until(client, b"event: preview")
        os.kill(worker.pid, signal.SIGKILL)
        read_until(client, b"event: failed")
        client.close()
        until(lambda: served.get("/health")[0] == 503)
        assert "SIGKILL" in json.loads(served.get("/health")[1])["cause"]
        ((name, data),) = served.ask()
        assert name == "failed"
        assert "SIGKILL" in data["message"] or "ended" in data["message"]
