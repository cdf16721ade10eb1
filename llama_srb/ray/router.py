"""Which replica gets a request: the named one, else one that has had a prompt with the same beginning.

Ray's router decides the latter. It is imported from its own module, because the public name,
ray.serve.llm.request_router, needs vLLM or SGLang. It compares prompts by a tree in one actor, which all
ingress replicas ask. Ray would start that actor on any node, and when that node is lost no request finds a
replica any more. So it is started on the head node, without which there is no cluster.
"""

from __future__ import annotations

from typing import Any

from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import (
    PrefixCacheAffinityRouter,
)
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree import PrefixTreeActor
from ray.serve.request_router import PendingRequest, RunningReplica

ON_HEAD = {"node:__internal_head__": 0.001}  # a resource that only the head node has
NAMESPACE = "llama-srb"

Ranked = list[list[RunningReplica]]


class AffinityRouter(PrefixCacheAffinityRouter):  # type: ignore[misc] # Ray has no types here
    """A call has its prompt in its first argument's `prompt`, and may name its replica: replica=NAME."""

    def initialize_state(self, **options: Any) -> None:
        """Ray calls it. options: request_router_kwargs."""
        tree = PrefixTreeActor.options(
            name=f"prefixes of {self.app_name}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,  # by default it waits for a free one, which there may never be
            resources=ON_HEAD,
        ).remote()
        super().initialize_state(**{"tree_actor": tree, **options})

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Ranked:
        """The replicas for one request, by rank."""
        wanted = pending_request and pending_request.kwargs.get("replica")
        if named := [one for one in candidate_replicas if one.replica_id.unique_id == wanted]:
            return [named]
        ranked: Ranked = await super().choose_replicas(candidate_replicas, pending_request)
        return ranked
