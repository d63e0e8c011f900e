"""Ollama's endpoints about models: which there are, fetching and removing them."""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from pagewheel import __version__
from pagewheel.errors import FetchError, InvalidArgumentError, ModelNotFoundError
from pagewheel.hub import HubName, parse_name, pull as pull_model
from pagewheel.pulled_models import find_pulled, pulled_models, remove_pulled
from pagewheel.serve.api.ollama import NDJSON, model_name, rfc3339
from pagewheel.serve.api.service import Context
from pagewheel.serve.errors import too_many
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.registry import ServedModel

T = TypeVar("T")
_HUBS = ("hf.co/", "huggingface.co/", "hub:")
_NEVER = datetime(9999, 12, 31, tzinfo=timezone.utc)


async def version(context: Context) -> None:
    await context.send_json({"version": __version__})


async def tags(context: Context) -> None:
    """Lists all models, in memory or not."""
    models = context.service.registry.models()
    described = await asyncio.to_thread(lambda: [_described(each) for each in models])
    await context.send_json({"models": described})


async def running(context: Context) -> None:
    """Lists the models in memory."""
    now = datetime.now(timezone.utc).timestamp()
    models = [each for each in context.service.registry.models() if each.engine is not None]

    def work() -> list[dict[str, Any]]:
        found = []
        for each in models:
            assert each.engine is not None
            left = each.idle_seconds_left
            end = _NEVER if math.isinf(left) else datetime.fromtimestamp(now + left, timezone.utc)
            own = {"size": each.engine.num_bytes, "size_vram": 0, "expires_at": rfc3339(end)}
            found.append({**_described(each), **own, "context_length": each.engine.max_model_len})
        return found

    await context.send_json({"models": await asyncio.to_thread(work)})


def read_shown(context: Context, fields: Fields) -> str:
    given = fields.take("model", str) or fields.take("name", str)
    fields.take("verbose", bool)
    fields.take("name", str)
    fields.refuse_rest()
    if given is None:
        raise bad_field("model", "is required", "missing_required_parameter")
    return model_name(context, given)


async def show(context: Context, name: str) -> None:
    """Says what a model is. It is loaded for that: its chat template says what it can do."""
    registry = context.service.registry
    async with registry.use(name) as engine:
        (model,) = (each for each in registry.models() if each.name == registry.target(name))
        await context.send_json(await engine.in_thread(lambda: _shown(model, engine)))


def _shown(model: ServedModel, engine: Engine) -> dict[str, Any]:
    described, info = _described(model), engine.info
    can = ["completion", "tools"]
    can += ["thinking"] if "<think>" in engine.chat_template else []
    can += ["insert"] if engine.infill_tokens is not None else []
    family = described["details"]["family"]
    facts = {
        "context_length": engine.max_model_len,
        "embedding_length": info and info.hidden_size,
        "block_count": info and info.layers,
        "attention.head_count": info and info.heads,
        "attention.head_count_kv": info and info.kv_heads,
    }
    about = {f"{family}.{name}": value for name, value in facts.items() if value is not None}
    return {
        "modelfile": f"FROM {model.name}\n",
        "parameters": "",
        "template": engine.chat_template,
        "details": described["details"],
        "model_info": {"general.architecture": family, **about},
        "capabilities": can,
        "modified_at": described["modified_at"],
    }


async def embed(context: Context) -> None:
    raise ApiError(501, "embeddings are not served yet", code="not_supported")


async def pull(context: Context) -> None:
    """Fetches a model of the hub, and serves it then.

    It goes on when the client leaves, until the server ends.
    """
    fields = Fields(await context.read_body())
    name, stream = _read_name(fields), fields.take("stream", bool, True)
    fields.take_one_of("insecure", (None, False))
    fields.refuse_rest()
    limit = context.service.settings.pulled_bytes
    if not limit:
        raise ApiError(403, "this server fetches no models: see --pull-space", code="pull_refused")
    if _parsed(name) is None:
        raise bad_field("model", "must be a name of the hub: owner/name, or owner/name:Q4_K_M")
    if context.service.pulling.locked():
        raise too_many("another model is being fetched", "pull_busy")
    said: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(text: str) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(said.put_nowait, text)

    async def work() -> None:
        async with context.service.pulling:
            try:
                path = await _in_daemon_thread(lambda: _fetch(name, limit, tell))
                context.service.registry.add(name, path)
            finally:
                said.put_nowait(None)

    task = asyncio.create_task(work())
    context.service.tasks.add(task)
    task.add_done_callback(context.service.tasks.discard)
    await context.while_connected(_tell_progress(context, said, task, stream))


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """The end of the process does not wait for it: what it fetches may take hours."""
    end: Future[T] = Future()
    end.set_running_or_notify_cancel()

    def run() -> None:
        try:
            end.set_result(work())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=run, name="pagewheel-pull", daemon=True).start()
    return await asyncio.wrap_future(end)


async def _tell_progress(
    context: Context, said: asyncio.Queue[str | None], task: asyncio.Task[None], stream: bool
) -> None:
    if stream:
        await context.start_events(NDJSON)
        while (text := await said.get()) is not None:
            await context.send_line({"status": text})
    error = await _failure(task)
    if error is not None and not stream:
        raise error
    end = {"status": "success"} if error is None else {"error": error.message}
    if not stream:
        await context.send_json(end)
        return
    await context.send_line(end)
    await context.end_events()


async def _failure(task: asyncio.Task[None]) -> ApiError | None:
    try:
        await asyncio.shield(task)
    except (ModelNotFoundError, InvalidArgumentError) as error:
        return ApiError(404, str(error), code="model_not_found")
    except FetchError as error:
        return ApiError(502, str(error), code="fetch_failed")
    return None


def _fetch(name: str, limit: int, tell: Callable[[str], None]) -> Path:
    used = sum(each.num_bytes for each in pulled_models() if each.name != name)
    return pull_model(name, progress=tell, most_bytes=max(0, limit - used)).path


async def delete(context: Context) -> None:
    """Removes a model that was fetched by name, and nothing else."""
    fields = Fields(await context.read_body())
    name = _read_name(fields)
    fields.refuse_rest()
    registry = context.service.registry
    pulled = find_pulled(name)
    if pulled is None:
        raise ApiError(404, f"model {name[:200]!r} was not fetched", code="model_not_found")
    others = [each.path for each in registry.models() if each.name != name]
    if registry.was_given(name) or pulled.path in others:
        raise ApiError(
            409, f"{name[:200]!r} is served since the server's start", code="model_is_served"
        )
    if registry.target(name) is not None:
        await registry.remove(name)
    with suppress(KeyError):  # another request has removed it
        await asyncio.to_thread(remove_pulled, name)
    await context.send_json({"status": "success"})


def _read_name(fields: Fields) -> str:
    name = fields.take("model", str)
    older = fields.take("name", str)
    name = name or older
    if not name:
        raise bad_field("model", "is required", "missing_required_parameter")
    for hub in _HUBS:
        name = name.removeprefix(hub)
    return name.removesuffix(":latest")


def _parsed(name: str) -> HubName | None:
    try:
        return parse_name(name)
    except InvalidArgumentError:
        return None


def _described(model: ServedModel) -> dict[str, Any]:
    """Reads the file system."""
    size, changed = 0, 0.0
    path = model.path
    if path is not None:
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        stats = [each.stat() for each in files]
        size = sum(each.st_size for each in stats)
        changed = max((each.st_mtime for each in stats), default=0.0)
    info = None if model.engine is None else model.engine.info
    family = (info.architecture or "") if info is not None else ""
    is_gguf = path is None or path.suffix == ".gguf"
    details = {
        "parent_model": "",
        "format": "gguf" if is_gguf else "openvino",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "",
        "quantization_level": (info.weight_format or "") if info is not None else "",
    }
    # It tells files apart by place, size and time: their content is not read for it.
    digest = hashlib.sha256(f"{path}\n{size}\n{changed}".encode()).hexdigest()
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": rfc3339(datetime.fromtimestamp(changed, timezone.utc)),
        "size": size,
        "digest": digest,
        "details": details,
    }
