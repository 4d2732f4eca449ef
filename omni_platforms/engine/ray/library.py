"""Ray itself: whether it is installed, and this process's connection to a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from omni_platforms.errors import ClusterError, MissingExtraError


def load_ray() -> Any:
    """Import Ray and return it. Raises `MissingExtraError` where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            f"RayExecutor needs Ray, which cannot be imported ({error}): run "
            "pip install 'omni-platforms[ray]', on every node of the cluster; on one host "
            "MultiprocExecutor needs no Ray"
        ) from error
    return ray


class _Connection:
    """This process's connection, where an executor made it: the last one that uses it ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._is_ours = False

    def join(self, address: str | None, options: Mapping[str, Any]) -> None:
        ray = load_ray()
        with self._lock:
            if ray.is_initialized():
                _check_same_cluster(ray, address)
            else:
                self._users, self._is_ours = 0, True
                _initialize(ray, address, options)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._is_ours and not self._users:
                self._is_ours = False
                load_ray().shutdown()


_connection = _Connection()


def connect(address: str | None, options: Mapping[str, Any]) -> Callable[[], None]:
    """Connect this process to a cluster; return what ends that, once nobody here uses it any more.

    `address` and `options` are `ray.init`'s: without an address it takes the one of
    `RAY_ADDRESS`, or a cluster of this host, or starts one. A connection that the caller's program
    had made stays. Raises `ClusterError`.
    """
    _connection.join(address, options)
    return _connection.leave


def _initialize(ray: Any, address: str | None, options: Mapping[str, Any]) -> None:
    defaults = {"logging_level": "WARNING"}
    try:
        ray.init(address=address, **{**defaults, **options})
    except Exception as error:
        where = "a new Ray instance" if address is None else f"the Ray cluster at {address}"
        raise ClusterError(
            f"{where} cannot be reached: {error}. Look with `ray status --address ...` whether "
            "it runs."
        ) from error


def is_connected() -> bool:
    """Whether Ray can be asked. Where not, many of its functions would start a new cluster."""
    return bool(load_ray().is_initialized())


def _check_same_cluster(ray: Any, address: str | None) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", connected):
        raise ClusterError(
            f"this process is connected to the Ray cluster at {connected}, and can have no other "
            f"({address}): call ray.shutdown() first"
        )
