"""Ray Serve: each replica is a whole server, and an ingress is in front of them. Needs the extra `ray`.

packaging/ray.yaml names `app`; docs/ray.md says how it is run.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve import Application

from llama_srb.ray.ingress import Ingress
from llama_srb.ray.loopback import bind_here
from llama_srb.ray.replica import Replica

bind_here()  # every process of the application imports this module before it listens


def app(args: dict[str, Any]) -> Application:
    """The application. args: the server's settings (docs/settings.md), as model and parallel."""
    server = serve.deployment(Replica, name="Server")
    ingress = serve.deployment(serve.ingress()(Ingress), name="Ingress")
    return ingress.bind(server.bind(args), args)
