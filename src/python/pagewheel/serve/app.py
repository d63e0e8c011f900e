"""The application: which path leads where."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from pagewheel.serve.api import (
    chat,
    completions,
    messages,
    ollama,
    ollama_models,
    operations,
    responses,
)
from pagewheel.serve.api.service import Context, Service, reading
from pagewheel.serve.http.errors import ApiError, protocol_of
from pagewheel.serve.http.request_context import Endpoint, Handler
from pagewheel.serve.page import paths, sender
from pagewheel.serve.page.cache import CacheViews

_MAX_LOGGED = 100  # characters of a path that there is not


def make_app(service: Service) -> FastAPI:
    """Leaves out FastAPI's own pages: they would load scripts from elsewhere."""

    async def no_such_path(request: Request, error: Exception) -> Response:
        protocol = protocol_of(request.url.path)
        endpoint = Endpoint(_refusal(request, error), protocol, is_limited=False)
        return Context(service, request, endpoint)

    app = FastAPI(
        title="pagewheel",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=service.running,
        exception_handlers={HTTPException: no_such_path},
        redirect_slashes=False,
    )

    if service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "x-ignored-fields"],
        )

    def add(method: str, path: str, handler: Handler, **options: bool) -> None:
        endpoint = service.served(path, Endpoint(handler, protocol_of(path), **options))

        async def answer(request: Request) -> Response:
            return Context(service, request, endpoint)

        app.add_api_route(path, answer, methods=[method], response_model=None)

    add("POST", "/v1/chat/completions", reading(chat.read, chat.answer))
    add("POST", "/v1/completions", reading(completions.read, completions.answer))
    add("POST", "/v1/responses", responses.create_response)
    add("GET", "/v1/responses/{name}", responses.show_response)
    add("DELETE", "/v1/responses/{name}", responses.delete_response)
    add("POST", "/v1/messages", reading(messages.read, messages.answer))
    counting = reading(messages.read_counted, messages.answer_count)
    add("POST", "/v1/messages/count_tokens", counting)
    add("GET", "/v1/models", operations.list_models, is_limited=False)
    add("GET", "/v1/models/{name:path}", operations.show_model, is_limited=False)
    add("POST", "/api/chat", reading(ollama.read_chat, ollama.answer))
    add("POST", "/api/generate", reading(ollama.read_generate, ollama.answer))
    add("GET", "/api/tags", ollama_models.tags, is_limited=False)
    add("GET", "/api/ps", ollama_models.running, is_limited=False)
    add("POST", "/api/show", reading(ollama_models.read_shown, ollama_models.show))
    add("GET", "/api/version", ollama_models.version, is_limited=False)
    add("POST", "/api/embed", ollama_models.embed)
    add("POST", "/api/embeddings", ollama_models.embed)
    add("POST", "/api/pull", ollama_models.pull, needs_admin=True)
    add("DELETE", "/api/delete", ollama_models.delete, needs_admin=True)
    loading = reading(operations.read_model, operations.load_model)
    add("POST", "/models/load", loading, needs_admin=True)
    add("POST", "/models/unload", operations.unload_model, needs_admin=True)
    add("POST", "/sleep", operations.sleep, needs_admin=True)
    add("POST", "/wake_up", operations.wake_up, needs_admin=True)
    add("GET", "/is_sleeping", operations.is_sleeping, is_limited=False)
    add("GET", "/version", ollama_models.version, is_limited=False)
    add("GET", "/prefixes", operations.list_prefixes)
    add("DELETE", "/prefixes", operations.delete_prefixes)
    add("POST", "/tokenize", reading(operations.read_text, operations.answer_tokens))
    add("POST", "/detokenize", reading(operations.read_tokens, operations.answer_text))
    add("GET", "/health", operations.health, needs_key=False)
    add("GET", "/ready", operations.ready, needs_key=False)
    has_key = not service.settings.open_metrics
    add("GET", "/metrics", operations.metrics, needs_key=has_key, is_limited=False)
    if service.settings.has_page:
        views = CacheViews(bool(service.settings.keys or service.settings.key_limits))
        add("GET", "/cache", views.show, is_counted=False)  # it takes a place all the same
        for path, file in paths().items():
            add("GET", path, sender(file), needs_key=False, is_counted=False)
    return app


def _refusal(request: Request, error: Exception) -> Handler:
    status = error.status_code if isinstance(error, HTTPException) else 404
    what = "no such path" if status == 404 else f"{request.method} is not for this path"

    async def refuse(context: Context) -> None:
        context.notes["asked"] = f"{request.method} {request.url.path[:_MAX_LOGGED]}"
        raise ApiError(status, what, headers=getattr(error, "headers", None))

    return refuse
