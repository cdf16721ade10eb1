"""The handlers of the routes: from a request's body to one body or a stream."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from llama_srb.config import Settings
from llama_srb.http.auth.access import Access
from llama_srb.http.connections import Connections
from llama_srb.http.handlers.bodies import Bodies
from llama_srb.http.handlers.compatibility import Compatibility
from llama_srb.http.handlers.control import Control
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.handlers.info import Info
from llama_srb.http.middleware import Handler, headers_for, middlewares
from llama_srb.http.reservations import Admission
from llama_srb.http.routes import ROUTES
from llama_srb.http.streaming import Responder
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.request.presets import Preset

GROUPS = (Generate, Compatibility, Control, Info)  # each handler is a method of one of them


class Api:
    """The HTTP API of one pool and one model."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        model: ModelInfo,
        access: Access,
        presets: Mapping[str, Preset] = {},
    ) -> None:
        self.settings, self.access, self.admission = settings, access, admission
        self.pool = admission.pool
        self.connections = Connections(settings)
        self.facts = ServerFacts(settings, self.pool, model, presets)
        bodies, responder = Bodies(), Responder(settings)
        self._control = Control(self.facts, admission, bodies, responder, self.connections)
        self._groups = (
            Generate(self.facts, admission, bodies, responder),
            Compatibility(self.facts, admission, bodies, responder),
            self._control,
            Info(self.facts, self.pool, admission.metrics),
        )

    def app(self) -> web.Application:
        """The aiohttp application. Its runner needs handler_cancellation, to notice clients that leave."""
        app = web.Application(
            middlewares=[
                *middlewares(self.admission.metrics),
                self.access.middleware(),
                self.connections.middleware(),
            ],
            client_max_size=self.settings.max_body,
        )
        for route in ROUTES:
            for method in route.methods:
                app.router.add_route(method, route.pattern, self._handler(route.handler))
        app.on_response_prepare.append(headers_for(self.access))
        app.on_shutdown.append(self._control.close_sockets)
        return app

    def _handler(self, name: str) -> Handler:
        (found,) = (getattr(group, name) for group in self._groups if hasattr(group, name))
        handler: Handler = found
        return handler
