"""Worker classes for the tests, run in processes of their own."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from omni_platforms.engine.worker import output_thread
from omni_platforms.engine.worker import snapshots as snapshots_module
from omni_platforms.errors import DeviceLostError
from omni_platforms.platform.selection import current_platform
from omni_platforms.shm import Packing, closing, segment

MB = 1 << 20


class Worker:
    """Does what its request says: a pair of a method's name and its argument, or a value."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        self.rank, self.device, self.config = rank, device, config or {}
        self.loaded: list[Any] = []
        self.last: list[weakref.ref[Any]] = []
        self.copies: Any = None

    def execute_model(self, request: Any) -> Any:
        if isinstance(request, tuple):
            name, argument = request
            return getattr(self, f"do_{name}")(argument)
        return request

    # Requests -----------------------------------------------------------------

    def do_fill(self, argument: Any) -> torch.Tensor:
        value, elements = argument
        output = torch.full((elements,), float(value), device=self.device)
        self.last.append(weakref.ref(output.untyped_storage()))
        if self.copies is not None:
            self.copies = output.clone()  # the second copy that a test plants
        return output

    def do_expanded(self, argument: Any) -> torch.Tensor:
        """Return an output that takes no memory before it is handed over."""
        value, elements = argument
        return torch.tensor([float(value)]).expand(elements)

    def do_fail(self, argument: Any) -> Any:
        output = self.do_fill((1, 100_000))
        kept = None
        try:
            raise ValueError(f"no {argument}")
        except ValueError as error:
            kept = error  # a cycle: the frame keeps what keeps the frame
            assert output is not None
            raise kept  # noqa: B904

    def do_exit(self, status: int) -> None:
        sys.exit(status)

    def do_unsendable(self, argument: Any) -> Any:
        return {"output": torch.ones(10_000), "what": lambda: argument}

    def do_lose_device(self, how: str) -> None:
        if how == "said":
            raise DeviceLostError("the worker saw it")
        platform: Any = current_platform()

        def gone(device: Any = None) -> None:
            raise RuntimeError("uncorrectable ECC error")

        platform.synchronize = gone
        raise RuntimeError("an illegal memory access was encountered")

    def do_raise_runtime_error(self, text: str) -> None:
        raise RuntimeError(text)

    def do_wait_for(self, path: str) -> str:
        """Wait until a file is there, as a long forward that a test can end."""
        deadline = time.monotonic() + 60
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        return path

    def do_hold_gil(self, seconds: float) -> None:
        print("holding the GIL", flush=True)
        library = ctypes.PyDLL(None)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            library.usleep(900_000)

    def do_stick_in_copy(self, seconds: float) -> torch.Tensor:
        """Let the output thread stand in its wait for a copy."""

        def wait(packing: Any, timeout: float | None = None) -> None:
            print("in the copy", flush=True)
            time.sleep(seconds)

        Packing.wait = wait  # type: ignore[method-assign, assignment]
        return self.do_fill((1, 10_000))

    # Calls --------------------------------------------------------------------

    def load(self, *args: Any, **kwargs: Any) -> Any:
        self.loaded.append((args, kwargs))
        return {"rank": self.rank, "args": args, "kwargs": kwargs, "tensor": torch.arange(3)}

    def refuse(self) -> None:
        raise KeyError("refused")

    def alive(self) -> int:
        """Count the outputs that this process still holds, without a collection."""
        return sum(reference() is not None for reference in self.last)

    def lent_blocks(self) -> int:
        """Count the blocks that the parent has, or that nobody can give back any more."""
        (arena,) = closing._live
        return arena.stats().lent

    def limit_memory(self, nbytes: int) -> None:
        """Let the system refuse larger segments to this process; 0: no more."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes or hard, hard))

    def limit(self, name: str, most: int) -> None:
        """Set a limit of this process; -1: no more than what it has now; 0: none."""
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        if name == "RLIMIT_AS" and most < 0:
            most = psutil.Process().memory_info().vms + 4 * MB
        elif most < 0:  # of open files
            most = os.dup(0)
            os.close(most)
        resource.setrlimit(kind, (most or hard, hard))

    def make_copies(self, really: bool) -> None:
        """Make a second copy of each output from now on, and keep the last; or no more."""
        self.copies = () if really else None

    def keep_one(self) -> int:
        self.kept = self.do_fill((1, 100))
        return self.alive()

    def let_go(self) -> int:
        del self.kept
        return self.alive()

    def unsendable_result(self) -> Any:
        return lambda: 0

    def pause_collector(self) -> None:
        gc.disable()

    def facts(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "threads": sorted(thread.name for thread in threading.enumerate()),
            "cpu": time.process_time(),
            "device": str(self.device),
            "config": self.config,
            "platform": current_platform().name,
            "path": sys.path,
            "switches": _context_switches(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "rss": psutil.Process().memory_info().rss,
        }

    def say(self, text: str) -> None:
        print(text)

    def fork_child(self) -> int:
        """Leave a child behind that has copies of all descriptors, for a minute."""
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        return child

    def _private(self) -> None:
        raise AssertionError("nobody may call it")

    def sleep(self, level: int = 1) -> int:
        return level

    def wake_up(self) -> str:
        return "awake"

    # Batches and steps --------------------------------------------------------

    def execute_model_batch(self, requests: dict[str, Any]) -> dict[str, Any]:
        if "explode" in requests.values():
            raise ArithmeticError("the whole batch")
        rows = torch.stack([torch.full((30_000,), float(len(name))) for name in requests])
        outputs: dict[str, Any] = dict(zip(requests, rows, strict=True))
        for name, request in requests.items():
            if request == "forget":
                del outputs[name]
            elif request == "bad":
                outputs[name] = ValueError("this member only")
        return outputs

    def execute_stepwise(self, request: Any) -> Iterator[Any]:
        if not isinstance(request, dict):
            return request
        return self._steps(**request)

    def _steps(self, steps: int, between: str = "", fail_at: int = 0) -> Iterator[Any]:
        latents = torch.zeros(8192, device=self.device)
        for step in range(1, steps + 1):
            if step == fail_at:
                raise ValueError(f"step {step}")
            latents.fill_(step)  # in place: a preview must not see the next step
            yield latents
            if between:
                self.do_wait_for(f"{between}{step}")
        return latents.fill_(10 * steps)


class OnDevice(Worker):
    """A worker on a simulated device, whose waits a test can change."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        self.platform: Any = current_platform()
        self.static = torch.zeros(20_000, device=device)

    def host_waits(self) -> int:
        """Count how often this thread, the main one, waited for the device."""
        from omni_platforms.simulator.startup import start_from_environment

        simulation = start_from_environment()
        assert simulation is not None
        return simulation.host_waits_of()

    def device_bytes(self) -> int:
        return int(torch.accelerator.memory_stats()["allocated_bytes.all.current"])

    def plant(self, bug: str) -> None:
        """Plant a bug; "" takes it out again."""
        for name in ("synchronize_event", "record_device_event"):
            vars(self.platform).pop(name, None)
        output_thread.snapshots = snapshots_module.snapshots
        if bug == "no wait for the device":
            self.platform.synchronize_event = lambda event, timeout=None: True
        elif bug == "no snapshots":
            output_thread.snapshots = lambda nest: nest

    def hold_copies(self, path: str) -> None:
        """Let every wait for a copy last until a file is there."""
        wait = self.platform.synchronize_event

        def held(event: Any, timeout: float | None = None) -> bool:
            self.do_wait_for(path)
            return bool(wait(event, timeout))

        self.platform.synchronize_event = held

    def do_fail_on_device(self, index: int) -> torch.Tensor:
        """Queue a kernel that fails when it runs: an index that is out of range."""
        where = torch.tensor([index] * 20_000).to(self.device)
        return torch.nn.functional.embedding(where, torch.ones(3, 2, device=self.device))

    def do_static(self, value: float) -> torch.Tensor:
        """Return the one buffer of all requests, as a replayed graph does."""
        return self.static.fill_(value)


class Borrowing(OnDevice):
    borrow_outputs = True


class WatchesDevices(OnDevice):
    """Notes on which device each thread is when it waits for an event."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        self.waits: dict[str, set[int]] = {}
        wait = self.platform.synchronize_event

        def noted(event: Any, timeout: float | None = None) -> bool:
            here = self.waits.setdefault(threading.current_thread().name, set())
            here.add(torch.accelerator.current_device_index())
            return bool(wait(event, timeout))

        self.platform.synchronize_event = noted

    def devices_of_waits(self) -> dict[str, list[int]]:
        return {name: sorted(devices) for name, devices in self.waits.items()}

    def bytes_ever_on(self, index: int) -> int:
        return int(torch.accelerator.memory_stats(index)["allocated_bytes.all.peak"])


class StaysOnTheFirst(WatchesDevices):
    """On a platform whose `set_device` does nothing from now on, which is the planted bug."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        self.platform.set_device = lambda device: None


class SingleWorker:
    """The least that a worker class can be."""

    def __init__(self, rank: int, device: torch.device, config: Any, world_size: int) -> None:
        self.world_size = world_size

    def execute_model(self, request: Any) -> Any:
        if request == "bad":
            raise ValueError("this member only")
        return {"request": request, "world_size": self.world_size}


class WithoutMemfd(Worker):
    """Runs where shared memory has names: the arena is made after this object."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        del os.memfd_create


class Lazy(WithoutMemfd):
    """Uses pages that were not allocated before, which is the planted bug."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        segment._allocate = segment._touch = lambda *_: None  # type: ignore[assignment]


class Unasked(Worker):
    """Allocates without asking what the control group has left, which is the planted bug."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        segment._check_memory_left = lambda size: None  # type: ignore[assignment]


class Deaf(Worker):
    """Ignores SIGTERM."""

    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        super().__init__(rank, device, config)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class FailsToStart(Worker):
    def __init__(self, rank: int, device: torch.device, config: Any) -> None:
        print("loading the weights ...")
        if config == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if config == "hang":
            time.sleep(60)
        raise FileNotFoundError("no weights")


def _context_switches() -> int:
    """Count how often the threads of this process gave a processor up, or were made to."""
    lines = [
        line
        for task in Path("/proc/self/task").iterdir()
        for line in (task / "status").read_text().splitlines()
    ]
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
