"""Real clients call the same servers as the tests of the real engine."""

from tests.real.conftest import chat_model, lasting, server

__all__ = ["chat_model", "lasting", "server"]
