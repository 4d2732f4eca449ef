"""The socket of a process: who gets in, who is swept away, and that nobody waits for anybody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor, ObserveError
from omni_platforms.observe import client, expose, hide, places, server, snapshot
from omni_platforms.observe.client import Answer, ask, ask_all
from omni_platforms.observe.server import Server
from omni_platforms.observe.state import describe
from omni_platforms.observers import Made
from omni_platforms.platform.cpu import CpuPlatform
from tests.engine.fakes import until

PATIENCE = 30.0
SNAPSHOT = {"want": "snapshot"}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of sockets of one test. pytest's own is too long a name for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("OMNI_EXPOSE_FOLDER", os.path.join(folder, "home"))
        monkeypatch.setenv("OMNI_EXPOSE", "0")
        yield places.made_folder()


@contextlib.contextmanager
def serving(home: Path, **answers: Any) -> Iterator[Server]:
    made = Server(home, {"snapshot": lambda question, connection: {"hello": 1}, **answers})
    try:
        yield made
    finally:
        made.close()


# Being seen -----------------------------------------------------------------------


def test_an_exposed_process_tells_what_its_executors_have(home: Path) -> None:
    go = threading.Event()
    try:
        path = expose()
        assert expose() == path
        assert os.environ["OMNI_EXPOSE"] == "1"  # for the workers to come
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with AsyncOutputExecutor(CpuPlatform()) as outputs:
            future = outputs.submit(torch.ones(100), on_host=lambda value: go.wait(PATIENCE))
            until(lambda: outputs.phases() == {"pack": 1})
            (answer,) = ask_all(home, SNAPSHOT)
            go.set()
            assert future.result(PATIENCE)
        document = answer.document
        assert document is not None
        assert (answer.pid, document["pid"], document["rank"]) == (os.getpid(), os.getpid(), None)
        mine = [each for each in document["executors"] if each["phases"] == {"pack": 1}]
        assert [each["stats"]["pending"] for each in mine] == [1]
        assert mine[0]["oldest"] > 0
        assert mine[0]["stats"]["mode"] == "blocking"
    finally:
        go.set()
        hide()
    assert list(home.iterdir()) == []
    assert ask_all(home, SNAPSHOT) == []


def test_a_closed_executor_is_not_shown() -> None:
    outputs = AsyncOutputExecutor(CpuPlatform())
    number = len(snapshot()["executors"])
    outputs.close()
    assert len(snapshot()["executors"]) == number - 1


# Dead and dying processes ---------------------------------------------------------

DYING = """
import os, signal, sys, time
from pathlib import Path
from omni_platforms.observe.server import Server
from omni_platforms.observe.state import describe
from omni_platforms.observers import Made
def die(question, connection):
    connection.sendall(b'{"half": "a wo')
    os.kill(os.getpid(), signal.SIGKILL)
Server(Path(sys.argv[1]), {"snapshot": die})
print("up", flush=True)
time.sleep(60)
"""


def start(program: str, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(home)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_process_that_is_killed_while_it_answers_is_not_there(home: Path) -> None:
    with start(DYING, home) as process:
        assert ask_all(home, SNAPSHOT) == []
        assert process.wait(PATIENCE) == -signal.SIGKILL
    (left,) = home.iterdir()
    assert left.suffix == ".sock"
    assert ask_all(home, SNAPSHOT) == []  # and now its socket refuses
    assert list(home.iterdir()) == []


def test_twin_half_an_answer_is_no_document(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_answer", lambda pid, data: Answer(pid, {"data": data}))
    with pytest.raises(AssertionError):
        test_a_process_that_is_killed_while_it_answers_is_not_there(home)


def test_a_process_that_is_stopped_is_reported_and_holds_up_no_other(home: Path) -> None:
    with serving(home), start(DYING, home) as process:
        process.send_signal(signal.SIGSTOP)
        answers = {answer.pid: answer for answer in ask_all(home, SNAPSHOT, timeout=0.5)}
        assert answers[process.pid].problem == "no answer within 0.5 s"
        assert answers[os.getpid()].document == {"hello": 1}
        process.kill()
    assert [answer.pid for answer in ask_all(home, SNAPSHOT)] == []


def test_names_that_no_process_answers_on_yet_are_left_alone(home: Path) -> None:
    young, old = home / "1-a.tmp", home / "2-b.tmp"
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    assert ask_all(home, SNAPSHOT) == []
    assert [path.name for path in home.iterdir()] == ["1-a.tmp"]


def test_a_socket_has_its_name_only_when_it_answers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between bind and listen it would refuse, and be swept away."""
    seen: list[list[str]] = []
    listen = socket.socket.listen

    def look(self: socket.socket, backlog: int) -> None:
        seen.append([path.suffix for path in home.iterdir()])
        assert ask_all(home, SNAPSHOT) == []
        listen(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", look)
    with serving(home) as made:
        assert ask(made.path, SNAPSHOT) == Answer(os.getpid(), {"hello": 1})
    assert seen == [[".tmp"]]


def test_twin_a_socket_that_has_its_name_too_early_is_swept_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = socket.socket.bind
    monkeypatch.setattr(
        socket.socket, "bind", lambda self, name: bind(self, name.replace(".tmp", ".sock"))
    )
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    monkeypatch.setattr(os, "rename", lambda *_: None)
    with pytest.raises((AssertionError, OSError)):
        test_a_socket_has_its_name_only_when_it_answers(home, monkeypatch)


# Who gets in ----------------------------------------------------------------------

STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(20)
try:
    connection.connect(sys.argv[1])
    connection.sendall(b'{"want": "snapshot"}\\n')
    print(repr(connection.recv(100)))
except ConnectionError:
    print("b''")
except PermissionError:
    print("kept out")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def as_nobody(path: Path) -> str:
    command = [sys.executable, "-c", STRANGER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def open_up(path: Path) -> None:
    """Let everybody reach a socket, as if its folder were no protection."""
    path.chmod(0o777)
    for folder in path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)


@needs_root
def test_another_user_is_kept_out_by_the_folder_and_by_the_process(home: Path) -> None:
    with serving(home) as made:
        assert as_nobody(made.path) == "kept out"
        open_up(made.path)
        assert as_nobody(made.path) == "b''"
        assert ask(made.path, SNAPSHOT) == Answer(os.getpid(), {"hello": 1})  # it goes on


@needs_root
def test_twin_without_the_look_at_credentials_another_user_gets_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "_is_ours", lambda self, connection: True)
    with pytest.raises(AssertionError):
        test_another_user_is_kept_out_by_the_folder_and_by_the_process(home)


def test_a_folder_that_others_may_enter_is_refused_by_both_sides(home: Path) -> None:
    home.chmod(0o755)
    with pytest.raises(ObserveError, match="mode 755"):
        places.made_folder()
    with pytest.raises(ObserveError, match="not private"):
        ask_all(home, SNAPSHOT)


def test_a_link_to_a_folder_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("OMNI_EXPOSE_FOLDER", str(tmp_path / "link"))
    with pytest.raises(ObserveError, match="is no folder"):
        places.made_folder()


def test_folders_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_EXPOSE_FOLDER", str(tmp_path / ("x" * 120)))
    with pytest.raises(ObserveError, match="too long"):
        places.made_folder()
    (tmp_path / "file").touch()
    monkeypatch.setenv("OMNI_EXPOSE_FOLDER", str(tmp_path / "file" / "below"))
    with pytest.raises(ObserveError, match="OMNI_EXPOSE_FOLDER"):
        places.made_folder()


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNI_EXPOSE_FOLDER", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert places.folder() == tmp_path / "omni-platforms"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert places.folder().name == f"omni-platforms-{os.geteuid()}"


# Nobody waits ---------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"no json\n", b'{"want": "what"}\n', b"[]\n", b"x" * 9000])
def test_nonsense_gets_no_answer_and_harms_nobody(home: Path, said: bytes) -> None:
    with serving(home) as made:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(made.path))
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
        assert ask(made.path, SNAPSHOT) == Answer(os.getpid(), {"hello": 1})


def test_who_does_not_read_holds_up_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 5.0)
    large = {"text": "x" * (8 << 20)}
    with serving(home, large=lambda *_: large) as made, socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(made.path))
        idle.sendall(b'{"want": "large"}\n')
        until(lambda: any(t.name == "omni-expose-one" for t in threading.enumerate()))
        assert ask(made.path, SNAPSHOT, 4.0) == Answer(os.getpid(), {"hello": 1})
        answer = ask(made.path, {"want": "large"}, PATIENCE)
        assert answer is not None
        assert answer.document == large


def runs_of(thread: threading.Thread) -> int:
    """How often a thread has had a processor."""
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[2])


def stays_asleep(thread: threading.Thread, seconds: float) -> bool:
    before = runs_of(thread)
    time.sleep(seconds)
    return runs_of(thread) == before


def test_an_idle_server_sleeps(home: Path) -> None:
    """Counted, not timed: once it has served, its thread has no processor for 0.3 s."""
    with serving(home) as made:
        ask(made.path, SNAPSHOT)
        until(lambda: stays_asleep(made._thread, 0.3))


def test_twin_a_thread_that_polls_is_seen() -> None:
    end = threading.Event()
    thread = threading.Thread(target=lambda: [None for _ in iter(lambda: end.wait(0.02), True)])
    thread.start()
    try:
        assert not any(stays_asleep(thread, 0.3) for _ in range(3))
    finally:
        end.set()
        thread.join()


def test_a_forked_child_is_seen_by_itself(home: Path) -> None:
    """As of a server that loads, and then forks: executors of the parent are none of the child."""
    reading, writing = os.pipe()
    with AsyncOutputExecutor(CpuPlatform()) as of_parent:
        try:
            path = expose()
            child = os.fork()
            if not child:
                os.close(writing)
                ok = server._server is None and path.exists() and not snapshot()["executors"]
                of_child = AsyncOutputExecutor(CpuPlatform())
                ok = ok and len(snapshot()["executors"]) == 1 and not of_child.closed
                os.read(reading, 1)  # until the parent has looked
                os._exit(0 if ok else 1)
            both = {os.getpid(), child}
            until(lambda: {answer.pid for answer in ask_all(home, SNAPSHOT)} == both)
        finally:
            os.close(writing)
            hide()
    assert os.waitpid(child, 0)[1] == 0
    assert of_parent.closed
    os.close(reading)


def test_an_executor_that_cannot_be_asked_says_why() -> None:
    told = describe(Made("engine", 4, object()))
    assert told is not None
    assert (told["kind"], told["number"]) == ("engine", 4)
    assert told["problem"].startswith("AttributeError")


def test_a_folder_that_cannot_be_is_a_warning_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNI_EXPOSE_FOLDER", str(tmp_path / ("x" * 120)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        server.expose_with_first()
        AsyncOutputExecutor(CpuPlatform()).close()
    assert any("cannot be seen" in str(warning.message) for warning in caught)


def test_a_snapshot_lets_a_waiting_worker_look_again() -> None:
    """Asking an arena takes in what came back; an output that waits for room must hear of it."""
    done: list[str] = []

    class Part:
        rank, device = 0, torch.device("cpu")
        platform = CpuPlatform()

        def describe(self) -> list[Any]:
            return [{"phase": "room", "seconds": 2.0}, {"phase": "room", "seconds": 1.0}]

        def stats(self) -> Any:
            done.append("stats")
            names = "cap total_bytes used_bytes peak_used_bytes lent in_flight registered"
            return type("Stats", (), dict.fromkeys(names.split(), 0))

        def wake(self) -> None:
            done.append("wake")

    part: Any = Part()
    part.table = part.arena = part.room = part
    told = describe(Made("worker", 0, part))
    assert done == ["stats", "wake"]
    assert told is not None
    assert (told["phases"], told["oldest"]) == ({"room": 2}, 2.0)
    assert json.dumps(told)
