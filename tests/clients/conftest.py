"""The servers of tests/real, for real clients."""

from tests.real.conftest import chat_model, lasting, server

__all__ = ["chat_model", "lasting", "server"]
