"""A Ray cluster for tests: several raylets of this machine, each on a loopback address of its own.

127.0.0.1 itself does not do: Ray replaces it by the machine's own address.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MB = 1 << 20
HEAD = "127.0.0.2"
STORE = 80 * MB


class Nodes:
    """A running cluster. `options` are what a `RayExecutor` needs to use it."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._next = 3

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def options(self) -> dict[str, Any]:
        return {"address": self.address, "ray_options": {"_node_ip_address": HEAD}}

    def add(self, **arguments: Any) -> Any:
        """Add a node with an address of its own."""
        host = f"127.0.0.{self._next}"
        self._next += 1
        return self._cluster.add_node(
            node_ip_address=host, object_store_memory=STORE, include_log_monitor=False, **arguments
        )

    def kill(self, node: Any) -> None:
        """Kill a node's raylet, as a crash of its machine would."""
        self._cluster.remove_node(node, allow_graceful=False)

    def remove(self, node: Any) -> None:
        self._cluster.remove_node(node)


def require_ray() -> None:
    """Skip without Ray, which is a failure in CI: it is part of the development environment."""
    if importlib.util.find_spec("ray") is None:
        message = "ray: Ray is not installed; run pip install 'omni-platforms[ray]'"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(message)
        pytest.skip(message)


@contextmanager
def running(**head: Any) -> Iterator[Nodes]:
    """Run a cluster of one node; its files are in a folder that goes with it."""
    require_ray()
    folder = tempfile.mkdtemp(prefix="omni-ray-", dir="/tmp")  # a socket's path has 107 bytes
    token = Path(folder) / "token"
    token.write_text(secrets.token_hex(32))
    ours = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_prestart_worker_first_driver": "0",  # one Python a processor, which nobody needs
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    import ray
    from ray.cluster_utils import Cluster

    try:
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 8,
                "node_ip_address": HEAD,
                "object_store_memory": STORE,
                "include_dashboard": False,
                "include_log_monitor": False,
                **head,
            },
        )
        try:
            yield Nodes(cluster)
        finally:
            ray.shutdown()
            cluster.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
