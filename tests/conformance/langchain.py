"""LangChain's standard tests against this server: .venv/bin/python -m tests.conformance.langchain

langchain-tests (PyPI) with the chat models of langchain-openai (chats and responses), langchain-anthropic and
langchain-ollama, and the embeddings of two. The model is made (tests/support/agent.py). Takes three minutes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance.suites import environment, folder, run_pytest, tell
from tests.support.agent import LIKED, write_agent_model
from tests.support.serving import serving

PACKAGES = (
    "langchain-tests==1.1.9",
    "langchain-openai==1.7.4",
    "langchain-anthropic==1.7.10",
    "langchain-ollama==1.1.0",
)
TESTS = """
import os

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

URL = os.environ["URL"]
OURS = {"model": "agent", "base_url": URL + "/v1", "api_key": "-"}


class Chats(ChatModelIntegrationTests):
    model_override_value = "another"
    supports_json_mode = True


class TestOpenAI(Chats):
    chat_model_class = ChatOpenAI
    chat_model_params = OURS | {"max_retries": 0, "stream_usage": True}


class TestResponses(Chats):
    chat_model_class = ChatOpenAI
    chat_model_params = OURS | {"max_retries": 0, "use_responses_api": True}


class TestAnthropic(Chats):
    chat_model_class = ChatAnthropic
    chat_model_params = {"model": "agent", "base_url": URL, "api_key": "-", "max_retries": 0}
    supports_json_mode = False  # a mode of OpenAI's


class TestOllama(Chats):
    chat_model_class = ChatOllama
    chat_model_params = {"model": "agent", "base_url": URL}
    has_tool_choice = False  # Ollama has none


class TestEmbeddings(EmbeddingsIntegrationTests):
    embeddings_class = OpenAIEmbeddings
    embedding_model_params = OURS | {"check_embedding_ctx_length": False}  # else it loads OpenAI's tokenizer


class TestOllamaEmbeddings(EmbeddingsIntegrationTests):
    embeddings_class = OllamaEmbeddings
    embedding_model_params = {"model": "agent", "base_url": URL}
"""
KNOWN = {
    "*::test_json_mode": "the made model ends an object at once, and in this mode no schema holds it",
    "*::test_unicode_tool_call_integration": "the made model always writes the same argument",
}


def main() -> int:
    home = folder("langchain")
    python = environment(home, PACKAGES)
    (home / "test_standard.py").write_text(TESTS)
    with tempfile.TemporaryDirectory() as name:
        for model in ("agent", "another"):
            write_agent_model(Path(name) / f"{model}.gguf", liked=LIKED + "3")  # the number asked for
        with serving("--models-dir", name, "--ctx", "16384") as server:
            loops = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")
            results = run_pytest(python, home, *loops, "test_standard.py", URL=server.url)
    return tell(PACKAGES[0], results, KNOWN)


if __name__ == "__main__":
    sys.exit(main())
