"""`python -m deployments.agent.serving.try_one e12 …`: have the engine answer once, and tell how long that took.

From then on the job counts as good: its last step leaves the engine alone.
"""

import http.client
import json
import time
from pathlib import Path
from typing import Any

from deployments.agent.config import Config
from deployments.agent.serving import engine, program
from deployments.agent.serving.program import NOTHING, SERVED, Stopped
from deployments.serving.asked import Ask
from deployments.steps import Text

ANSWER_S = 300.0
MOST_ANSWER = 1024 * 1024
WORDS = 8
ASKED = (
    ("/v1/completions", {"prompt": "1, 2, 3,"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "1, 2, 3,"}]}),
)
NOT_OFFERED = (400, 404, 405, 501)  # of a model that only chats, or only completes


def work(ask: Ask, config: Config) -> int:
    if ask.is_follower:
        Path(SERVED).touch()
        return NOTHING
    spec, began = engine.of(config, ask.name).spec(), time.monotonic()
    tokens = answered(ask, str(spec.get("served_model_name") or ""), str(spec.get("api_key") or ""))
    took = time.monotonic() - began
    title = Text("一次回答", "One answer")
    program.item("answer", title, "ok", f"{took * 1000:.0f} ms · {'—' if tokens is None else tokens} tokens")
    program.say(f"引擎在 {took:.2f} 秒内回答了一次。", f"The engine answered once in {took:.2f} s.")
    Path(SERVED).touch()
    return 0


def answered(ask: Ask, model: str, key: str) -> int | None:
    """How many tokens it has given, None where it does not say. Raises Stopped."""
    refused = ""
    for path, asked in ASKED:
        body = {"model": model, "max_tokens": WORDS, "temperature": 0.0, **asked}
        status, text = post(ask, path, body, key)
        if status == 200:
            return _tokens(text)
        refused = f"HTTP {status}: {' '.join(text.split())[:300]}"
        if status not in NOT_OFFERED:
            break
    raise Stopped(
        f"引擎已就绪，但拒绝了一次请求（{refused}）。请看引擎日志。",
        f"The engine is ready, but refused a request ({refused}). See its log.",
    )


def post(ask: Ask, path: str, body: dict[str, Any], key: str) -> tuple[int, str]:
    """Status and text. Raises Stopped where nobody answers."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    connection = http.client.HTTPConnection(ask.address, ask.port, timeout=ANSWER_S)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_ANSWER).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Stopped(
            f"引擎已就绪，但没有回答一次请求（{error}）。请看引擎日志。",
            f"The engine is ready, but did not answer a request ({error}). See its log.",
        ) from error
    finally:
        connection.close()


def _tokens(text: str) -> int | None:
    """Raises Stopped where the answer is none."""
    try:
        found = json.loads(text)
        found["choices"][0]
        tokens = found.get("usage", {}).get("completion_tokens")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Stopped(
            "引擎的回答没有内容（choices）。请看引擎日志。",
            "The engine's answer holds no text (choices). See its log.",
        ) from error
    return tokens if type(tokens) is int else None


if __name__ == "__main__":
    raise SystemExit(program.run(work))
