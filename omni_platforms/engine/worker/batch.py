"""One forward for several requests, each of which may fail alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omni_platforms.engine.payload import Pickled
from omni_platforms.errors import UnsendableError


class Failed:
    """Stands for the output of a member that has none."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def run_batch(worker: Any, pickled: Mapping[str, Pickled]) -> dict[str, Any]:
    """Return the output of each request, or `Failed`.

    A request that cannot be rebuilt, that the worker answers with an exception object or
    does not answer at all fails alone. Raises what `execute_model_batch` raises, and
    `TypeError` when it returns no mapping. A worker without that method runs
    the requests one by one.
    """
    outputs: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for name, request in pickled.items():
        try:
            requests[name] = request.load()
        except UnsendableError as error:
            outputs[name] = Failed(error)
    if hasattr(worker, "execute_model_batch"):
        outputs |= _together(worker, requests)
    else:
        outputs |= {name: _alone(worker, request) for name, request in requests.items()}
    return outputs


def _together(worker: Any, requests: dict[str, Any]) -> dict[str, Any]:
    if not requests:
        return {}
    names = list(requests)
    found = worker.execute_model_batch(requests)
    if not isinstance(found, Mapping):
        raise TypeError(
            f"execute_model_batch must return a mapping from request id to output, not "
            f"{type(found).__name__}"
        )
    return {name: _answer(found, name) for name in names}


def _answer(found: Mapping[str, Any], name: str) -> Any:
    if name not in found:
        return Failed(KeyError(f"execute_model_batch returned no output for request {name!r}"))
    output = found[name]
    return Failed(output) if isinstance(output, BaseException) else output


def _alone(worker: Any, request: Any) -> Any:
    try:
        return worker.execute_model(request)
    except Exception as error:  # noqa: BLE001  it fails this one request
        return Failed(error)
