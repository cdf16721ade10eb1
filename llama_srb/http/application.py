"""The aiohttp application of a service: its routes, handlers and middlewares."""

from __future__ import annotations

from aiohttp import web

from llama_srb.http.batches.handlers import BatchRoutes
from llama_srb.http.connections import Connections
from llama_srb.http.gate import Gate
from llama_srb.http.handlers.adapter_loads import AdapterRoutes
from llama_srb.http.handlers.compatibility import Compatibility
from llama_srb.http.handlers.control import Control
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.handlers.health import Health
from llama_srb.http.handlers.info import Info
from llama_srb.http.handlers.loads import Loads
from llama_srb.http.handlers.overrides import OverrideRoutes
from llama_srb.http.handlers.responses import Responses
from llama_srb.http.memories.handlers import MemoryRoutes
from llama_srb.http.middleware import headers_for, middlewares
from llama_srb.http.request_keys import API_PREFIX, DIALECTS, ROWS
from llama_srb.http.request_keys import ROUTES as ROUTES_OF_APP
from llama_srb.http.route import Handler, Route
from llama_srb.http.routes import ROUTES
from llama_srb.http.stories.handlers import StoryRoutes
from llama_srb.http.streaming import Responder
from llama_srb.http.tasks.handlers import TaskRoutes
from llama_srb.serving.service import Service


async def _to_studio(request: web.Request) -> web.StreamResponse:
    """The studio's page, whose own addresses are relative, has a slash at its end."""
    raise web.HTTPPermanentRedirect(f"{request.path}/")


class HttpApi:
    """A service by HTTP: the rows of the table of routes with their handlers, behind the middlewares."""

    def __init__(self, service: Service) -> None:
        settings, registry = service.settings, service.registry
        self._service = service
        self.connections = Connections(settings, service.large)
        responder, self._gate = Responder(settings, service.running), Gate(settings, service.access)
        self._control = Control(registry, service.running, self.connections)
        info = Info(registry, keeps_stories=service.stories is not None)
        generate = Generate(registry, responder)
        self._loads = Loads(registry, info)
        self._groups = (
            generate,
            Responses(registry, responder, service.responses, service.large),
            Compatibility(registry, responder),
            self._control,
            info,
            Health(registry),
            AdapterRoutes(registry),
            OverrideRoutes(registry),
            self._loads,
            TaskRoutes(registry, generate),
            MemoryRoutes(registry),
            BatchRoutes(registry, service.batches),
            StoryRoutes(registry, service.stories),
        )

    def app(self) -> web.Application:
        """The aiohttp application. Its runner needs handler_cancellation, to notice clients that leave."""
        registry, settings = self._service.registry, self._service.settings
        app = web.Application(
            middlewares=[
                *middlewares(registry.admission.metrics, registry.traces),
                self._gate.middleware(),
                self.connections.middleware(),
            ],
            client_max_size=settings.max_body,
        )
        prefix, rows = settings.api_prefix, dict[web.AbstractRoute, Route]()
        app[API_PREFIX], app[ROUTES_OF_APP], app[ROWS] = prefix, ROUTES, rows
        app[DIALECTS] = {route.path: route.dialect for route in ROUTES}
        for route in ROUTES:
            for method in route.methods:
                handler = self._bound(route.handler)
                rows[app.router.add_route(method, prefix + route.pattern, handler)] = route
        if prefix:
            (page,) = (route for route in ROUTES if route.path == "/")
            rows[app.router.add_get(prefix, _to_studio)] = page
        headers = headers_for(self._gate, settings.worker_name)
        app.on_response_prepare.extend((headers, self.connections.unanswered.begun))
        app.on_shutdown.extend((self._control.close_sockets, self._loads.end_streams))
        return app

    def _bound(self, handler: Handler) -> Handler:
        """A handler of the table as the method of its group."""
        name = handler.__name__
        (found,) = (group for group in self._groups if getattr(type(group), name, None) is handler)
        bound: Handler = getattr(found, name)
        return bound
