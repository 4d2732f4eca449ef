"""An image server that shows each picture while it is made, as server-sent events.

    pip install 'omni-platforms[server]'
    python examples/image_server/server.py --port 8000

Then open http://127.0.0.1:8000, or

    curl -N 'http://127.0.0.1:8000/pictures?prompt=hills&seed=4&steps=20'

Events are `preview` (`step`, `png`), `picture` (`prompt`, `png`) and `failed` (`type`, `message`);
pictures are PNG files in base64. Whoever disconnects gives the request up: the worker finishes the
step that it is in and goes on to the next client. A slow client sees fewer previews.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import uvicorn
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from PIL import Image

from omni_platforms import MultiprocExecutor, Preview

FOLDER = Path(__file__).resolve().parent
PAGE = (FOLDER / "page.html").read_text(encoding="utf-8")


def create_app(**options: Any) -> FastAPI:
    """Return the application; `options` are those of `MultiprocExecutor`."""
    options = {"worker": f"{FOLDER / 'worker.py'}:Worker", "num_workers": 1, **options}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.executor = await asyncio.to_thread(MultiprocExecutor, **options)
        try:
            yield
        finally:
            await asyncio.to_thread(app.state.executor.shutdown)

    app = FastAPI(title="Pictures", lifespan=lifespan)
    app.get("/", response_class=HTMLResponse)(page)
    app.get("/health")(health)
    app.get("/pictures", response_class=EventSourceResponse)(pictures)
    return app


async def page() -> str:
    """Show a page that asks for a picture."""
    return PAGE


async def health(request: Request, response: Response) -> dict[str, Any]:
    """Answer 200 while the workers serve requests, and 503 with the cause afterwards."""
    executor = request.app.state.executor
    if executor.failure is not None:
        response.status_code = 503
        return {"state": "failed", "cause": str(executor.failure)}
    stats = executor.stats()
    return {"state": stats.state, "pending": stats.pending, "dropped": stats.dropped}


async def items_of(
    request: Request,
    prompt: str,
    seed: int = 0,
    steps: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> AsyncIterator[AsyncIterator[Any]]:
    """Give what comes of a request. Closed behind the response, however that ends.

    A disconnect cancels whoever waits for the next item, and this closes the stream: both
    drop the request.
    """
    wanted = {"prompt": prompt, "seed": seed, "steps": steps}
    async with aclosing(request.app.state.executor.stream(wanted)) as items:
        yield items


async def pictures(
    items: Annotated[AsyncIterator[Any], Depends(items_of)],
) -> AsyncIterator[ServerSentEvent]:
    """Send previews, then the picture. They are encoded on a thread, not on the loop."""
    item = None
    try:
        async for item in items:
            yield await asyncio.get_running_loop().run_in_executor(None, event_of, item)
    except Exception as error:  # noqa: BLE001  it is this request's, and its client hears of it
        data = {"type": type(error).__name__, "message": str(error)}
        yield ServerSentEvent(event="failed", data=data)
    finally:
        del item  # a cancelled task's traceback keeps this frame, and that the picture's memory


def event_of(item: Any) -> ServerSentEvent:
    """Return the event of a preview or of the output."""
    if isinstance(item, Preview):
        return ServerSentEvent(event="preview", data={"step": item.step, "png": encode(item.value)})
    data = {"prompt": item.value["prompt"], "png": encode(item.value["image"])}
    return ServerSentEvent(event="picture", data=data)


def encode(pixels: torch.Tensor) -> str:
    """Return uint8 pixels `[height, width, 3]` as a PNG file in base64."""
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode("ascii")


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes, one a device")
    parser.add_argument("--side", type=int, default=512, help="pixels")
    options = parser.parse_args()
    app = create_app(num_workers=options.workers, config={"side": options.side})
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
