"""The endpoints that generate nothing: models, tokens, saved prefixes, health and metrics."""

from __future__ import annotations

import logging
from typing import Any

from pagewheel.serve.api.conversation import read_messages, take_template_kwargs
from pagewheel.serve.api.generating import Conversation, prompt_of, take_prompt_suffix
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import take_tools
from pagewheel.serve.errors import unavailable
from pagewheel.serve.http.body import Fields, shown
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.models.registry import PrefixUse

_log = logging.getLogger("pagewheel.serve")


async def list_models(context: Context) -> None:
    """Lists models and aliases, in memory or not."""
    names = context.service.registry.names()
    await context.send_json(
        {"object": "list", "data": [_description(context, name) for name in names]}
    )


async def show_model(context: Context) -> None:
    name = context.request.path_params["name"]
    if context.service.registry.target(name) is None:
        raise ApiError(404, f"The model {name[:200]!r} does not exist", code="model_not_found")
    await context.send_json(_description(context, name))


def _description(context: Context, name: str) -> dict[str, Any]:
    registry = context.service.registry
    target = registry.target(name)
    assert target is not None
    return {
        "id": name,
        "object": "model",
        "created": context.service.created,
        "owned_by": "pagewheel",
        "root": target,
        "max_model_len": registry.max_model_len(target),
    }


# A model, and a text with whether special tokens come before it, or a conversation. The last one is
# whether the tokens' texts are wanted.
_Text = tuple[str | None, str, bool, Conversation | None, bool]


async def answer_tokens(context: Context, request: _Text) -> None:
    model, prompt, special, conversation, with_texts = request
    async with context.service.registry.use(model) as engine:
        if conversation is not None:
            tokens = (await prompt_of(context, engine, conversation)).tokens
        else:
            tokens = await engine.with_text(
                context.api_key_id, len(prompt), lambda: engine.encode(prompt, special)
            )
        size = {"count": len(tokens), "max_model_len": engine.max_model_len}
        answer: dict[str, Any] = {**size, "tokens": tokens}
        if with_texts:
            names = await engine.tokens_by_id()
            texts = [names.get(each, b"").decode("utf-8", "replace") for each in tokens]
            answer["token_strs"] = texts
        await context.send_offloaded(lambda: answer, len(tokens))


def read_text(_: Context, fields: Fields) -> _Text:
    """Takes a text, or a conversation, which is rendered."""
    model = fields.take("model", str)
    prompt = fields.take("prompt", str)
    messages = fields.take("messages", list)
    if (prompt is None) == (messages is None):
        raise ApiError(400, "give prompt or messages, one of them", param="prompt")
    conversation = None
    special = True
    if messages is None:
        special = fields.take("add_special_tokens", bool, True)
    else:
        said = read_messages("messages", messages)
        conversation = Conversation(
            said, take_tools(fields), take_template_kwargs(fields), take_prompt_suffix(fields, said)
        )
    with_texts = fields.take("return_token_strs", bool, False)
    fields.refuse_rest()
    return model, prompt or "", special, conversation, with_texts


async def answer_text(context: Context, request: tuple[str | None, list[int]]) -> None:
    """Gives the text of token ids, of special ones too."""
    model, tokens = request
    async with context.service.registry.use(model) as engine:
        text = await engine.with_text(
            context.api_key_id, len(tokens), lambda: engine.decode(tokens)
        )
        await context.send_offloaded(lambda: {"prompt": text}, len(tokens))


def read_tokens(_: Context, fields: Fields) -> tuple[str | None, list[int]]:
    model = fields.take("model", str)
    tokens = fields.need("tokens", list)
    fields.refuse_rest()
    for number, each in enumerate(tokens):
        if type(each) is not int or not 0 <= each < 2**31:
            raise bad_field(f"tokens[{number}]", f"must be a token id, got {shown(each)}")
    return model, tokens


async def list_prefixes(context: Context) -> None:
    """Keys that share prefixes are told no sizes."""
    tenant = context.tenant
    found = await context.service.registry.prefixes_of(tenant.id)
    data = [_described(name, use, not tenant.is_shared) for name, use in found.items()]
    await context.send_json({"object": "list", "data": data})


def _described(name: str, use: PrefixUse, with_sizes: bool) -> dict[str, Any]:
    saved = use.saved if with_sizes else None
    return {
        "object": "prefixes",
        "model": name,
        "cached_tokens": use.cached_tokens if with_sizes else None,
        "saved_bytes": saved and saved.num_bytes,
        "saved_at": saved and int(saved.time),
    }


async def delete_prefixes(context: Context) -> None:
    """Requests that are under way may leave theirs."""
    try:
        await context.service.registry.forget_prefixes(context.tenant.id)
    except OSError as error:
        _log.warning("saved prefixes not removed", extra={"error": str(error)})
        raise unavailable("the saved prefixes cannot be removed now", "prefixes_busy") from None
    await context.send_json({"object": "prefixes", "deleted": True})


async def load_model(context: Context, name: str) -> None:
    """Waits until the model is in memory, as llama.cpp's endpoint does."""
    async with context.service.registry.use(name):
        await context.send_json({"success": True})


async def unload_model(context: Context) -> None:
    """The next request loads it again."""
    name = read_model(context, Fields(await context.read_body()))
    await context.service.registry.unload(name)
    await context.send_json({"success": True})


def read_model(_: Context, fields: Fields) -> str:
    name = fields.need("model", str)
    fields.refuse_rest()
    return name


async def sleep(context: Context) -> None:
    """Unloads all models, as vLLM's endpoint does. A request for one wakes that one."""
    registry = context.service.registry
    for model in registry.models():
        await registry.unload(model.name)
    await context.send_bytes(b"", "text/plain")


async def wake_up(context: Context) -> None:
    """Loads the models of the server's start."""
    await context.service.registry.load_pinned()
    await context.send_bytes(b"", "text/plain")


async def is_sleeping(context: Context) -> None:
    models = context.service.registry.models()
    await context.send_json({"is_sleeping": all(each.engine is None for each in models)})


async def health(context: Context) -> None:
    await context.send_json({"status": "ok"})


async def ready(context: Context) -> None:
    """Answers 200 while requests are welcome.

    Models of the start are in memory then, and no end has begun.
    """
    if context.service.admission.is_closed:
        raise unavailable("the server is shutting down", "shutting_down")
    if not context.service.registry.is_ready():
        raise unavailable("models are being loaded, or have failed", "loading")
    await context.send_json({"status": "ready"})


async def metrics(context: Context) -> None:
    text = context.service.metrics.text()
    await context.send_bytes(text, "text/plain; version=0.0.4; charset=utf-8")
