"""The former name of llama_srb.ray, which configurations of Ray Serve have."""

from llama_srb.ray import app

__all__ = ["app"]
