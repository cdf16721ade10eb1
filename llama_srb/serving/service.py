"""What serves callers, whatever their protocol: made once, before requests come."""

from __future__ import annotations

from llama_srb.config import Settings
from llama_srb.serving.batches.service import BatchService
from llama_srb.serving.bodies import LargeBodies
from llama_srb.serving.kept_responses import KeptResponses
from llama_srb.serving.keys.access import Access
from llama_srb.serving.memories import MemoryAccess
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.running import Running
from llama_srb.serving.story_store import StoryStore


class Service:
    """The parts of one server. stories: None if it keeps none."""

    def __init__(
        self,
        settings: Settings,
        registry: ModelRegistry,
        access: Access,
        memories: MemoryAccess,
        stories: StoryStore | None,
    ) -> None:
        self.settings, self.registry, self.access = settings, registry, access
        registry.memories = memories
        self.running, self.large = Running(settings.max_unread), LargeBodies(settings.max_body)
        self.responses = KeptResponses(settings.responses, settings.responses_size, settings.responses_age)
        self.batches, self.stories = BatchService(settings, access), stories
