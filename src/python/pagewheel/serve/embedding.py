"""What a program may import that runs the server, or a part of it, inside of its own."""

from pagewheel.serve.api.operations import ready as ready
from pagewheel.serve.api.service import Context as Context, Service as Service
from pagewheel.serve.app import make_app as make_app
from pagewheel.serve.errors import unavailable as unavailable
from pagewheel.serve.http.errors import ApiError as ApiError
from pagewheel.serve.http.request_context import Endpoint as Endpoint, Handler as Handler
from pagewheel.serve.logs import configure as configure_logs
from pagewheel.serve.security import (
    AllowedHosts as AllowedHosts,
    ApiKeys as ApiKeys,
    Tenant as Tenant,
)
from pagewheel.serve.server import run as run_server
from pagewheel.serve.settings import (
    KeyLimits as KeyLimits,
    ModelSettings as ModelSettings,
    ServerSettings as ServerSettings,
)

__all__ = ["configure_logs", "run_server"]
