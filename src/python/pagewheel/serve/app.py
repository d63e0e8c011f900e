"""The application: which path leads where."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from pagewheel.serve.api import chat, completions, messages, operations, responses
from pagewheel.serve.api.service import Context, Service
from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import Endpoint, Handler
from pagewheel.serve.page import paths, sender
from pagewheel.serve.page.cache import CacheViews

_MAX_LOGGED = 100  # characters of a path that there is not


def make_app(service: Service) -> FastAPI:
    """Without FastAPI's own pages: they would load scripts from elsewhere."""

    async def no_such_path(request: Request, error: Exception) -> Response:
        is_anthropic = request.url.path.startswith("/v1/messages")
        endpoint = Endpoint(_refusal(request, error), is_anthropic, is_limited=False)
        return Context(service, request, endpoint)

    app = FastAPI(
        title="pagewheel",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=service.running,
        exception_handlers={HTTPException: no_such_path},
        redirect_slashes=False,
    )

    def add(method: str, path: str, handler: Handler, **options: bool) -> None:
        endpoint = Endpoint(service.handler_for(path, handler), **options)

        async def answer(request: Request) -> Response:
            return Context(service, request, endpoint)

        app.add_api_route(path, answer, methods=[method], response_model=None)

    add("POST", "/v1/chat/completions", chat.chat_completions)
    add("POST", "/v1/completions", completions.completions)
    add("POST", "/v1/responses", responses.create_response)
    add("GET", "/v1/responses/{name}", responses.show_response)
    add("DELETE", "/v1/responses/{name}", responses.delete_response)
    add("POST", "/v1/messages", messages.create_message, is_anthropic=True)
    add("POST", "/v1/messages/count_tokens", messages.count_tokens, is_anthropic=True)
    add("GET", "/v1/models", operations.list_models, is_limited=False)
    add("GET", "/v1/models/{name:path}", operations.show_model, is_limited=False)
    add("GET", "/prefixes", operations.list_prefixes)
    add("DELETE", "/prefixes", operations.delete_prefixes)
    add("POST", "/tokenize", operations.tokenize)
    add("POST", "/detokenize", operations.detokenize)
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
