"""vLLM's own tests of its API against this server: .venv/bin/python -m tests.conformance.vllm

The tests are those of vLLM's source package (PyPI) that start a server and call it. In place of vLLM they
find modules without content, in place of the server that they would start one of ours, and in place of the
tokenizer that server's paths. Tests of vLLM's own classes are left out. The model is the bundled one, and for
tools and thoughts a made one (tests/support/agent.py). Takes some minutes.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.conformance.suites import environment, folder, run, run_pytest, tell
from tests.support.agent import LIKED, write_agent_model
from tests.support.places import STORYTELLER
from tests.support.serving import LASTING, serving

VERSION = "0.33.0"
PACKAGES = (
    "unearth==0.19.0",  # gets a source package without building it, as pip would
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "openai==3.57.0",
    "anthropic==2.14.0",
    "requests",
    "regex",
    "jsonschema",
    "numpy",
    "prometheus-client",
)
FILES = (
    "conftest.py",
    "openai/completion/test_completion.py",
    "openai/chat_completion/test_chat.py",
    "openai/chat_completion/test_chat_completion.py",
    "openai/chat_completion/test_chat_echo.py",
    "openai/chat_completion/test_chat_logit_bias_validation.py",
    "openai/chat_completion/test_enable_force_include_usage.py",
    "openai/chat_completion/test_logprob_token_ids.py",
    "openai/chat_completion/test_non_object_body_validation.py",
    "openai/test_chunked_prompt.py",
    "openai/test_return_token_ids.py",
    "openai/test_return_tokens_as_ids.py",
    "serve/tokenize/test_tokenization.py",
    "serve/instrumentator/test_basic.py",
    "anthropic/test_messages.py",
    "pooling/basic/test_truncation.py",
)
WITH_TOOLS = (
    "openai/chat_completion/test_completion_with_function_calling.py",
    "openai/chat_completion/test_include_reasoning.py",
    "openai/chat_completion/test_thinking_token_budget.py",
)
STUBS = '''
"""Modules without content in place of vLLM's; a tokenizer and a server by the address of one that runs."""

import importlib.abc
import importlib.machinery
import os
import sys
from unittest.mock import MagicMock

import openai
import requests

URL = os.environ["URL"]


def called(path, **body):
    answer = requests.post(f"{URL}/{path}", json=body)
    answer.raise_for_status()
    return answer.json()


class Tokenizer:
    bos_token_id, eos_token_id = 0, 0
    all_special_ids = (0,)

    def encode(self, text, add_special_tokens=True):
        return called("tokenize", content=text, add_special=add_special_tokens, parse_special=True)["tokens"]

    def __call__(self, text, add_special_tokens=True):
        return MagicMock(input_ids=self.encode(text, add_special_tokens))

    def decode(self, tokens, skip_special_tokens=False):
        return called("detokenize", tokens=list(tokens))["content"]

    def convert_ids_to_tokens(self, tokens):
        pieces = called("tokenize", content=self.decode(tokens), with_pieces=True, add_special=False)
        return [piece["piece"] for piece in pieces["tokens"]]

    def apply_chat_template(self, conversation, tokenize=True, **more):
        prompt = called("apply-template", messages=conversation, **more)["prompt"]
        return self.encode(prompt, False) if tokenize else prompt


class Remote:
    """vLLM's RemoteOpenAIServer, for a server that is there already."""

    def __init__(self, model, arguments=(), **more):
        self.url_root = URL
        self.host, self.port = URL.removeprefix("http://").split(":")

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        return None

    def url_for(self, *parts):
        return "/".join([URL, *parts])

    def get_client(self, **more):
        return openai.OpenAI(base_url=self.url_for("v1"), api_key="-", max_retries=0, **more)

    def get_async_client(self, **more):
        return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key="-", max_retries=0, **more)

    def get_client_anthropic(self, **more):
        import anthropic

        return anthropic.Anthropic(base_url=URL, api_key="-", max_retries=0, **more)

    def get_async_client_anthropic(self, **more):
        import anthropic

        return anthropic.AsyncAnthropic(base_url=URL, api_key="-", max_retries=0, **more)


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("vllm", "torch", "fastapi") or name.startswith("tests.models"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        module.get_tokenizer = lambda *names, **more: Tokenizer()
        module.ModelConfig = lambda **more: MagicMock(get_vocab_size=lambda: 4096)
        module.VLLMValidationError = ValueError
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Empty())
'''
UTILS = """
from unittest.mock import MagicMock

from stubs import Remote as RemoteOpenAIServer


def __getattr__(name):
    return MagicMock(name=name)
"""
CONFTEST = '''
import stubs

SERVERS = {"server", "client", "server_fixture", "remote_server"}


def pytest_collection_modifyitems(config, items):
    """Tests of vLLM's own classes call no server."""
    ours = [item for item in items if SERVERS & set(item.fixturenames)]
    config.hook.pytest_deselected(items=[item for item in items if item not in ours])
    items[:] = ours
'''
MODEL = "what the model says; this one can't reckon, or does not think here"
BOS = "the model's first token stands before a prompt, also before a chat's"
NOT_HERE = "a field or path that this server does not have"
MORE_IS_TAKEN = "taken here: it does no harm, or llama-server's clients send it"
AS_OPENAI = "as OpenAI's, or Anthropic's, own answers"
KNOWN = {
    "*test_named_tool_use": MODEL,
    "*test_response_format_json_*": MODEL,
    "*test_complex_message_content": MODEL,
    "*test_more_than_one_prompt_logprobs*": MODEL,
    "*test_anthropic_tool_call": MODEL,
    "test_include_reasoning::*": MODEL,
    "*test_thinking_token_budget_limits_reasoning*": MODEL,
    "*test_batch_completions*": "beam search is n draws here",
    "*test_single_completion*": BOS,
    "*test_echo_logprob_completion*": BOS,
    "*test_tokenize_chat*": BOS,
    "test_return_token_ids::test_chat_*": BOS,
    "*test_kv_transfer*": NOT_HERE,
    "*test_per_request_metrics*": NOT_HERE,
    "*test_logprob_token_ids*": NOT_HERE,
    "test_truncation::test_bigger_*": "a limit above the context is a 400 only for a text above it",
    "test_truncation::test_max_*": "-1 cuts to the context: 1,024 tokens here, 128 there",
    "*test_chat_session_with_echo*": "echo in a chat: " + NOT_HERE,
    "*test_invocations": NOT_HERE,
    "*test_show_version": "gateways would take this server for vLLM",
    "*test_server_load*": NOT_HERE,
    "*test_long_seed": "needs torch",
    "test_return_tokens_as_ids::*": "with a flag of vLLM's, or the drawn token among top_logprobs",
    "*test_zero_logprobs*": "top_logprobs has as many as asked for; the drawn token stands in token_logprobs",
    "*test_too_many_*_logprobs*": "up to 100",
    "test_chat_echo::test_*logprobs": "-1, for the whole vocabulary: up to 100",
    "*test_prompt_logprobs_*None]": "a field that was not asked for is absent, not null",
    "*test_basic_completion_with_emoji*": "a field that was not asked for is absent, not null",
    "*test_single_chat_session*": "usage counts thoughts and cached tokens, too",
    "*test_chat_streaming*": AS_OPENAI + ": the last chunk has no text",
    "*test_parallel_streaming*": AS_OPENAI + ": the last chunk has no text",
    "*test_anthropic_streaming*": AS_OPENAI + ": input_tokens are without those of the cache",
    "*_stream_options[[]*": MORE_IS_TAKEN,
    "*test_empty_grammar*": MORE_IS_TAKEN,
    "*test_chat_logit_bias_*": MORE_IS_TAKEN + ": keys that are texts; the 400 of an id names the last one",
    "*test_request_wrong_content_type": MORE_IS_TAKEN,
    "*test_detokenize*": "content, for llama-server's clients, stands beside prompt",
}

# two draws of the model must differ there
BY_CHANCE = ("*test_structured_outputs_choice_chat", "*test_structured_outputs_json_chat")


def unpack(python: Path, home: Path) -> Path:
    """The folder with the tests, in which nothing of vLLM is but they."""
    archive = home / f"vllm-{VERSION}.tar.gz"
    if not archive.exists():
        run(python.parent / "unearth", f"vllm=={VERSION}", "--no-binary", "--download", home, cwd=home)
    work = home / "work"
    shutil.rmtree(work, ignore_errors=True)
    top = f"vllm-{VERSION}/tests/entrypoints/"
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith(top) and member.name.removeprefix(top) in (*FILES, *WITH_TOOLS):
                member.name = "tests/entrypoints/" + member.name.removeprefix(top)
                tar.extract(member, work, filter="data")
    for place in {path.parent for path in work.rglob("*.py")}:
        while place != work:
            (place / "__init__.py").touch()
            place = place.parent
    (work / "stubs.py").write_text(STUBS)
    (work / "conftest.py").write_text(CONFTEST)
    (work / "tests/utils.py").write_text(UTILS)
    return work


def main() -> int:
    home = folder("vllm")
    python = environment(home, PACKAGES)
    work = unpack(python, home)
    results = {}
    with tempfile.TemporaryDirectory() as name:
        agent = Path(name) / "agent.gguf"
        write_agent_model(agent, liked="}]" + LIKED[1:])  # lists end, too
        runs = {str(STORYTELLER): FILES[1:], str(agent): WITH_TOOLS}
        for model, files in runs.items():
            with serving("--model", model, "--ctx", "8192", "--", *LASTING) as server:
                paths = [f"tests/entrypoints/{file}" for file in files]
                results |= run_pytest(python, work, *sys.argv[1:], *paths, URL=server.url)
    return tell(f"vllm=={VERSION}", results, KNOWN, BY_CHANCE)


if __name__ == "__main__":
    sys.exit(main())
