"""A vLLM that pretends: it takes vLLM's arguments, prints what vLLM prints while it loads, answers /health, /v1/models,
/v1/completions, /v1/chat/completions (streams with usage, too), /metrics and /version, and misbehaves on request.

    python tests/deployments/pretended_vllm.py --model FOLDER --served-model-name NAME --host 127.0.0.1 --port PORT

How stands in `<FOLDER>/pretend.json` (the keys of DEFAULTS). While it runs, a file of these names in the folder changes
it: `hang` (no answer any more), `sick` (/health is 503), `refuse` (requests get 500), `slow` (tokens take 0.5 s), `die`
(it ends with 3, its child stays), `say` (its bytes are printed, then it goes). Beside it stand `argv.json`, `env.json`
and `pids.json` ([server, engine core, child in a session of its own]) of the newest start, and `starts`: a line for
each.
"""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DEFAULTS = {
    "load_s": 0.0,  # until it answers
    "shards": 2,
    "graphs": 0,  # captured, as progress with carriage returns
    "kv_tokens": 20480,
    "max_model_len": 2048,
    "die": "",  # its last words while it loads
    "exit": 1,
    "dies": 0,  # so many starts die, the next one does not; 0: each does that has last words
    "stubborn": False,  # SIGTERM is not heeded
    "elsewhere": False,  # a child in a session of its own
    "token_s": 0.0,
    "tokens": 4,  # an answer's, where max_tokens is not given
    "flood_mb": 0.0,  # printed while it loads, as fast as it is taken
    "access_log": True,
}
SLEEPER = "import time\nwhile True: time.sleep(60)"


def settings(folder):
    try:
        return {**DEFAULTS, **json.loads((folder / "pretend.json").read_text())}
    except OSError:
        return dict(DEFAULTS)


def write(path, data):
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(data))
    aside.replace(path)


class Engine:
    def __init__(self, argv):
        self.argv = argv
        self.folder = Path(self.word("--model", "."))
        self.name = self.word("--served-model-name", str(self.folder))
        self.how = settings(self.folder)
        self.key = os.environ.get("VLLM_API_KEY", "")
        self.lock = threading.Lock()
        self.running = self.prompt_tokens = self.generated = self.done = 0
        self.ttft_s = 0.0

    def word(self, name, default):
        return self.argv[self.argv.index(name) + 1] if name in self.argv else default

    def has(self, name):
        return (self.folder / name).exists()

    def say(self, text, end="\n"):
        os.write(1, (text + end).encode())

    def info(self, text, who="APIServer", pid=None):
        self.say(f"({who} pid={pid or os.getpid()}) INFO 03-02 10:11:12 [pretended.py:1] {text}")

    def begin(self):
        with (self.folder / "starts").open("a") as file:
            file.write(f"{os.getpid()}\n")
        write(self.folder / "argv.json", self.argv)
        write(self.folder / "env.json", dict(os.environ))
        self.info("       version 0.99.0")
        self.core = subprocess.Popen([sys.executable, "-c", SLEEPER])
        pids = [os.getpid(), self.core.pid]
        if self.how["elsewhere"]:
            pids.append(subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True).pid)
        write(self.folder / "pids.json", pids)
        threading.Thread(target=self.watch, daemon=True).start()
        self.load()

    def load(self):
        how, core = self.how, self.core.pid
        self.info(f"Using max model len {how['max_model_len']}")
        starts = len((self.folder / "starts").read_text().split())
        if how["die"] and (not how["dies"] or starts <= how["dies"]):
            self.say(how["die"])
            self.core.kill()
            os._exit(how["exit"])
        line = b"x" * 99 + b"\n"
        for _ in range(int(how["flood_mb"] * 10)):
            sys.stdout.buffer.write(line * 1000)
        sys.stdout.flush()
        for n in range(how["shards"] + 1):
            share = 100 * n // how["shards"]
            self.say(
                f"\rLoading safetensors checkpoint shards: {share:3d}% Completed | {n}/{how['shards']} [0:00, ]", ""
            )
            time.sleep(how["load_s"] / (how["shards"] + 1))
        self.say("\n")
        self.info("Loading model weights took 1.25 GB", "Worker", core)
        self.info("Available KV cache memory: 3.50 GiB", "Worker", core)
        self.info(f"GPU KV cache size: {how['kv_tokens']:,} tokens", "EngineCore", core)
        times = how["kv_tokens"] / how["max_model_len"]
        self.info(
            f"Maximum concurrency for {how['max_model_len']:,} tokens per request: {times:.2f}x", "EngineCore", core
        )
        for n in range(how["graphs"] + 1 if how["graphs"] else 0):
            share = f"{100 * n // how['graphs']:3d}%|██| {n}/{how['graphs']}"
            self.say(f"\rCapturing CUDA graphs (decode, FULL): {share} [0:00]", "")
        self.say("\nINFO:     Application startup complete.")

    def watch(self):
        """As vLLM does: without its core the server ends. And what the files ask for."""
        while True:
            time.sleep(0.02)
            if self.core.poll() is not None:
                self.say("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")
                os._exit(0)
            if self.has("die"):
                (self.folder / "die").unlink()
                os._exit(3)
            if self.has("say"):
                os.write(1, (self.folder / "say").read_bytes())
                (self.folder / "say").unlink()

    def metrics(self):
        labels = f'{{engine="0",model_name="{self.name}"}}'
        values = {
            "num_requests_running": self.running, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.25,
            "prompt_tokens_total": self.prompt_tokens, "generation_tokens_total": self.generated,
            "num_preemptions_total": 0, "time_to_first_token_seconds_sum": self.ttft_s,
            "time_to_first_token_seconds_count": self.done,
            "request_time_per_output_token_seconds_sum": 0.01 * self.done,
            "request_time_per_output_token_seconds_count": self.done,
        }  # fmt: skip
        lines = [f"vllm:{name}{labels} {float(value)}" for name, value in values.items()]
        lines.append(
            f'vllm:request_success_total{{engine="0",finished_reason="length",model_name="{self.name}"}} {self.done}'
        )
        return "# HELP vllm:num_requests_running Pretended.\n" + "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def answer(self, code, data, kind="application/json"):
        body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_let_in(self):
        engine = self.engine
        while engine.has("hang"):
            time.sleep(0.05)
        if self.path.startswith("/v1") and engine.key and self.headers["Authorization"] != f"Bearer {engine.key}":
            self.answer(401, {"error": "Unauthorized"})
            return False
        return True

    def do_GET(self):
        if not self.is_let_in():
            return
        engine = self.engine
        if self.path == "/health":
            self.answer(503 if engine.has("sick") else 200, "")
        elif self.path == "/metrics":
            self.answer(200, engine.metrics(), "text/plain; version=0.0.4")
        elif self.path == "/version":
            self.answer(200, {"version": "0.99.0"})
        elif self.path == "/v1/models":
            card = {"id": engine.name, "object": "model", "root": str(engine.folder)}
            self.answer(200, {"object": "list", "data": [{**card, "max_model_len": engine.how["max_model_len"]}]})
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if not self.is_let_in():
            return
        engine, chat = self.engine, self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            return self.answer(404, {"detail": "Not Found"})
        if asked.get("model") != engine.name:
            words = f"The model `{asked.get('model')}` does not exist."
            return self.answer(404, {"error": {"message": words, "type": "NotFoundError", "code": 404}})
        if engine.has("refuse"):
            return self.answer(500, {"error": {"message": "refused", "type": "InternalServerError", "code": 500}})
        prompt = json.dumps(asked["messages"]) if chat else str(asked.get("prompt", ""))
        count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or engine.how["tokens"])
        usage = {"prompt_tokens": max(1, len(prompt.split())), "completion_tokens": count}
        usage["total_tokens"] = sum(usage.values())
        with engine.lock:
            engine.running += 1
        began = time.monotonic()
        try:
            self.stream(asked, chat, count, usage) if asked.get("stream") else self.whole(chat, count, usage)
        finally:
            with engine.lock:
                engine.running -= 1
                engine.done += 1
                engine.prompt_tokens += usage["prompt_tokens"]
                engine.generated += count
                engine.ttft_s += time.monotonic() - began

    def pause(self):
        time.sleep(0.5 if self.engine.has("slow") else self.engine.how["token_s"])

    def head(self, chat, more=""):
        kind = ("chat.completion" if chat else "text_completion") + (more if chat else "")
        return {"id": "cmpl-1", "object": kind, "created": int(time.time()), "model": self.engine.name}

    def whole(self, chat, count, usage):
        for _ in range(count):
            self.pause()
        text = "".join(f" t{n}" for n in range(count))
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        self.answer(
            200, {**self.head(chat), "choices": [{"index": 0, **said, "finish_reason": "length"}], "usage": usage}
        )

    def stream(self, asked, chat, count, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n in range(count):
            self.pause()
            said = {"delta": {"content": f" t{n}"}} if chat else {"text": f" t{n}"}
            end = "length" if n == count - 1 else None
            self.event({**self.head(chat, ".chunk"), "choices": [{"index": 0, **said, "finish_reason": end}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self.event({**self.head(chat, ".chunk"), "choices": [], "usage": usage})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data):
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, form, *words):
        if self.engine.how["access_log"]:
            self.engine.say(f'INFO:     {self.client_address[0]}:1 - "{self.requestline}"')


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # a client that went away


def main(argv=None):
    import signal

    engine = Engine(sys.argv[1:] if argv is None else argv)
    if engine.how["stubborn"]:
        signal.signal(signal.SIGTERM, lambda *_: engine.say("asked to stop"))
    else:
        signal.signal(signal.SIGTERM, lambda *_: (engine.core.kill(), os._exit(0)))
    engine.begin()
    Handler.engine = engine
    Server((engine.word("--host", "127.0.0.1"), int(engine.word("--port", "8000"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
