"""The handlers of the routes: from a request's body to one body or a stream."""

from __future__ import annotations

from aiohttp import web

from llama_srb.config import Settings
from llama_srb.http.auth.access import Access
from llama_srb.http.batches.handlers import BatchRoutes
from llama_srb.http.batches.service import BatchService
from llama_srb.http.connections import Connections
from llama_srb.http.handlers.adapters import Adapters
from llama_srb.http.handlers.chosen import Registry, uses_model
from llama_srb.http.handlers.compatibility import Compatibility
from llama_srb.http.handlers.control import Control
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.handlers.health import Health
from llama_srb.http.handlers.info import Info
from llama_srb.http.handlers.loads import Loads
from llama_srb.http.memories.access import MemoryAccess
from llama_srb.http.memories.handlers import MemoryRoutes
from llama_srb.http.middleware import Handler, headers_for, middlewares
from llama_srb.http.route import API_PREFIX
from llama_srb.http.routes import ROUTES
from llama_srb.http.stories.handlers import StoryRoutes
from llama_srb.http.streaming import Responder
from llama_srb.http.tasks.handlers import TaskRoutes
from llama_srb.http.unanswered import Unanswered

GROUPS = (
    Generate,
    Compatibility,
    Control,
    Info,
    Health,
    Adapters,
    Loads,
    TaskRoutes,
    MemoryRoutes,
    BatchRoutes,
    StoryRoutes,
)
"""Each handler is a method of one of them."""


async def _to_studio(request: web.Request) -> web.StreamResponse:
    """The studio's page, whose own addresses are relative, has a slash at its end."""
    raise web.HTTPPermanentRedirect(f"{request.path}/")


class Api:
    """The HTTP API of a server's models."""

    def __init__(
        self, settings: Settings, registry: Registry, access: Access, memories: MemoryAccess
    ) -> None:
        self.settings, self.access, self.registry = settings, access, registry
        self.connections, self.responder = Connections(settings), Responder(settings)
        self.unanswered = Unanswered()
        self.batches, self.stories = BatchService(settings, access), StoryRoutes(registry)
        registry.memories = memories
        self._control = Control(registry, self.responder, self.connections)
        info, generate = Info(registry), Generate(registry, self.responder)
        self._loads = Loads(registry, info)
        self._groups = (
            generate,
            Compatibility(registry, self.responder),
            self._control,
            info,
            Health(registry),
            Adapters(registry),
            self._loads,
            TaskRoutes(registry, generate),
            MemoryRoutes(registry),
            BatchRoutes(registry, self.batches),
            self.stories,
        )

    def app(self) -> web.Application:
        """The aiohttp application. Its runner needs handler_cancellation, to notice clients that leave."""
        app = web.Application(
            middlewares=[
                *middlewares(self.registry.admission.metrics, self.registry.traces),
                self.unanswered.middleware(),
                self.access.middleware(),
                self.connections.middleware(),
                uses_model,
            ],
            client_max_size=self.settings.max_body,
        )
        prefix = app[API_PREFIX] = self.settings.api_prefix
        for route in ROUTES:
            for method in route.methods:
                app.router.add_route(method, prefix + route.pattern, self._handler(route.handler))
        if prefix:
            app.router.add_get(prefix, _to_studio)
        headers = headers_for(self.access, self.settings.worker_name)
        app.on_response_prepare.extend((headers, self.unanswered.begun))
        app.on_shutdown.extend((self._control.close_sockets, self._loads.end_streams))
        return app

    def _handler(self, name: str) -> Handler:
        (found,) = (getattr(group, name) for group in self._groups if hasattr(group, name))
        handler: Handler = found
        return handler
