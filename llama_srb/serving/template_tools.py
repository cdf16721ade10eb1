"""Whether the chat template of a model knows tools; if not, requests lose them. Only the engine can tell."""

from __future__ import annotations

from typing import Any

from llama_srb.engine.exchange import CommandRefused
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.truncate import Command

NO_TOOLS = "tools is not used: the model's chat template knows no tools"
CHAT_WITH_A_TOOL: dict[str, Any] = {
    "messages": [{"role": "user", "content": "?"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}],
}


class TemplateTools:
    """What is known of one template. It asks with commands of a request that has a slot."""

    def __init__(self) -> None:
        self._are_known: bool | None = None  # None: not asked yet

    def may_change(self, request: CompletionRequest) -> bool:
        """Whether for_request() may change the request."""
        may_lack = request.tools is not None and request.tool_choice not in ("none", "required")
        return may_lack and self._are_known is not True

    async def for_request(self, request: CompletionRequest, command: Command) -> CompletionRequest:
        """Without tools, and with a warning, if the template knows none and no call is required."""
        if not self.may_change(request) or await self._has(command):
            return request
        warnings = (*request.warnings, NO_TOOLS)
        return request.model_copy(update={"tools": None, "tool_choice": None, "warnings": warnings})

    async def for_arguments(self, arguments: dict[str, Any], command: Command) -> dict[str, Any]:
        """The same for the arguments of an engine's command, which has no warnings."""
        may_lack = "tools" in arguments and arguments.get("tool_choice", "auto") == "auto"
        if not may_lack or await self._has(command):
            return arguments
        return {name: value for name, value in arguments.items() if name not in ("tools", "tool_choice")}

    async def _has(self, command: Command) -> bool:
        """Whether the template knows tools: the engine runs it."""
        if self._are_known is None:
            try:
                await command("template", **CHAT_WITH_A_TOOL)
                self._are_known = True
            except CommandRefused as refusal:
                if refusal.error.param != "tools":
                    return True  # another fault, which the request itself will show
                self._are_known = False
        return self._are_known
