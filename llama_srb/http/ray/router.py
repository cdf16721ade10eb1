"""The former name of llama_srb.ray.router, which configurations of Ray Serve have."""

from llama_srb.ray.router import AffinityRouter

__all__ = ["AffinityRouter"]
