"""vLLM of the stack in use as the engine of an evaluation: one server on loopback, asked one prompt after the other."""

import contextlib
import itertools
import json
import math
import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.artifacts import config
from deployments.artifacts.asked import Ask, CannotAnswer
from deployments.artifacts.engine_failures import ended_early
from deployments.artifacts.judge import Answer
from deployments.artifacts.processes import Program, environment, running
from deployments.stacks.cann_layer import with_env
from deployments.steps import Text

NAME = "evaluated"
POLL_S = 0.25
TELL_S = 5.0
ANSWER_S = 300.0
ENDS_S = 2.0  # between the end of its connections and its own
MOST_RESPONSE = 32 * 1024 * 1024
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: past every proxy


def arguments(ask: Ask, model: Path, port: int, devices: int, *, quantized: bool, length: int) -> list[str]:
    """How the server is started; `devices` is 0 on a machine without NPU."""
    argv = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", NAME,
            "--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(length), "--max-num-seqs", "1",
            "--dtype", ask.dtype, "--seed", "0", "--enforce-eager"]  # fmt: skip
    if quantized and devices:
        argv += ["--quantization", "ascend"]
    if devices > 1:
        argv += ["--tensor-parallel-size", str(devices)]
    return argv + (["--trust-remote-code"] if ask.remote_code else [])


def visible_devices() -> int:
    """How many NPUs the step may see: the runner has made this variable of the chosen bus ids."""
    words = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    return len([word for word in words.split(",") if word.strip()])


@dataclass(frozen=True)
class Server:
    """One that answers. `key` is asked for at each request: other accounts reach loopback, too."""

    program: Program
    port: int
    key: str

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_healthy(self) -> bool:
        try:
            with DIRECT.open(f"{self.base}/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def complete(self, **asked: Any) -> dict[str, Any]:
        """The answer to /v1/completions. Raises CannotAnswer."""
        body = json.dumps({"model": NAME, "temperature": 0.0, "seed": 0, **asked}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.base}/v1/completions", body, headers)
        try:
            with DIRECT.open(request, timeout=ANSWER_S) as response:
                found = json.loads(response.read(MOST_RESPONSE))
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read(4000).decode(errors="replace")) from error
        except (OSError, ValueError) as error:
            raise CannotAnswer(self._why()) from error
        choices = found.get("choices") if isinstance(found, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise CannotAnswer(_strange())
        choice: dict[str, Any] = choices[0]
        return choice

    def _why(self) -> Text:
        """Why there was no answer: it has ended, or will in a moment where the connection broke, or it is silent."""
        try:
            return ended_early(self.program.process.wait(ENDS_S), self.program.output)
        except subprocess.TimeoutExpired:
            return _silent()


class Refused(CannotAnswer):
    """The server answered a request with an error."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(
            Text(
                f"引擎拒绝了请求（HTTP {code}）：{words[:300]}",
                f"The engine refused a request (HTTP {code}): {words[:300]}",
            )
        )
        self.is_nan = "not JSON compliant" in words or "nan" in words.lower().split()
        self.is_too_long = "maximum context length" in words or "longer than the maximum" in words


@contextlib.contextmanager
def serving(ask: Ask, model: Path, *, quantized: bool) -> Iterator[Server]:
    """A server of the model, until the block ends. Raises CannotAnswer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key, devices = secrets.token_hex(16), visible_devices()
    inner = arguments(ask, model, port, devices, quantized=quantized, length=length_of(ask, model))
    print(" ".join(inner), flush=True)
    env = {**environment(), "VLLM_API_KEY": key}
    if not devices:
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch_npu without CANN breaks the import of torch
    with running(with_env([str(ask.activate)], inner), env) as program:
        server = Server(program, port, key)
        _await(server, ask.starts_s)
        yield server


def length_of(ask: Ask, model: Path) -> int:
    """The greatest length: what was asked for, or what the model takes where that is less."""
    own = config.as_far_as_read(model).get("max_position_embeddings")
    return min(ask.max_length, own) if isinstance(own, int) and own > 0 else ask.max_length


def _await(server: Server, within_s: float) -> None:
    began = told = time.monotonic()
    while not server.is_healthy():
        code = server.program.process.poll()
        if code is not None:
            raise CannotAnswer(ended_early(code, server.program.output))
        now = time.monotonic()
        if now - began > within_s:
            raise CannotAnswer(too_slow(within_s))
        if now - told >= TELL_S:
            told = now
            print(f"… {now - began:.0f} s", flush=True)
        time.sleep(POLL_S)
    print(f"ready after {time.monotonic() - began:.0f} s", flush=True)


def answer(server: Server, prompt: str, reference: str, max_tokens: int) -> Answer:
    """What the model says, and how probable it holds prompt and reference. Raises CannotAnswer."""
    try:
        choice = server.complete(prompt=prompt, max_tokens=max_tokens, logprobs=0, return_token_ids=True)
    except Refused as error:
        if error.is_nan:
            return Answer("", logprobs=(math.nan,), scored=None)
        raise
    told = choice.get("logprobs") or {}
    tokens, logprobs = told.get("tokens"), told.get("token_logprobs")
    ids = choice.get("token_ids")
    return Answer(
        str(choice.get("text", "")),
        _named(tokens, ids if isinstance(ids, list) else []) if isinstance(tokens, list) else (),
        tuple(_number(one) for one in logprobs) if isinstance(logprobs, list) else (),
        _scored(server, prompt + reference),
    )


def _named(tokens: list[Any], ids: list[Any]) -> tuple[str, ...]:
    """Texts; the number of a token that is a part of a character, which all look the same."""
    pairs = itertools.zip_longest(tokens, ids[: len(tokens)])
    return tuple(f"<{token_id}>" if "\ufffd" in str(text) else str(text) for text, token_id in pairs)


def _scored(server: Server, text: str) -> tuple[float, int] | None:
    """None where the engine gives no log probabilities of a prompt, or the text is too long for it."""
    try:
        rows = server.complete(prompt=text, max_tokens=1, prompt_logprobs=0).get("prompt_logprobs")
    except Refused as error:
        return (math.nan, 1) if error.is_nan else None
    if not isinstance(rows, list):
        return None
    found = [one for row in rows if isinstance(row, dict) and (one := _of_token(row)) is not None]
    return (sum(found), len(found)) if found else None


def _of_token(row: dict[str, Any]) -> float | None:
    """`{token id: {"logprob"}}`; with prompt_logprobs=0 it is the token of the prompt itself, which comes first."""
    first = next(iter(row.values()), None)
    return _number(first.get("logprob")) if isinstance(first, dict) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def too_slow(within_s: float) -> Text:
    return Text(
        f"引擎在 {within_s:g} 秒内没有准备好，已被停止。请看它最后的输出；大模型请加长启动时限，再重试。",
        f"The engine was not ready within {within_s:g} s and was stopped. See its last lines; give a large model more "
        "time to start, then try again.",
    )


def _silent() -> Text:
    return Text(
        f"引擎在 {ANSWER_S:g} 秒内没有回答一条提示词。请看它最后的输出，减少回答的词元数，再重试。",
        f"The engine did not answer a prompt within {ANSWER_S:g} s. See its last lines, ask for fewer tokens, then "
        "try again.",
    )


def _strange() -> Text:
    return Text(
        "引擎的回答没有内容（choices）。请看它最后的输出。",
        "The engine's answer holds no text (choices). See its last lines.",
    )
