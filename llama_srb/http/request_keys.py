"""What the application knows of its paths, and what the middlewares find out about a request."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from aiohttp import web

from llama_srb.http.route import Route
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.observe.traces import Trace

API_PREFIX = web.AppKey("api_prefix", str)
ROUTES = web.AppKey("routes", tuple[Route, ...])
ROWS = web.AppKey("rows", Mapping[web.AbstractRoute, Route])
DIALECTS = web.AppKey("dialects", Mapping[str, str])
"""Of the errors of each path."""

ROUTE: web.RequestKey[Route] = web.RequestKey("route", Route)
"""Its row in the table of routes; it is missing where there is none."""
CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
HELD: web.RequestKey[contextlib.ExitStack] = web.RequestKey("held", contextlib.ExitStack)
"""What a request holds until it is over."""
TRACE: web.RequestKey[Trace] = web.RequestKey("trace", Trace)
DIALECT: web.RequestKey[str] = web.RequestKey("dialect", str)
"""Of the answer, if it is another one than the path's."""
FORM_RULE: web.RequestKey[str] = web.RequestKey("form_rule", str)
"""The rule that has guessed the form of the answer."""
