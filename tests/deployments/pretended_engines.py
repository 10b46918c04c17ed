"""A stack whose Python is a script: it pretends to be vLLM, or the Python of msModelSlim's environment. How a model
behaves stands in its folder, in `behaviour`."""

import json
import os
import sys
from pathlib import Path

SERVER = """
import json, os, pathlib, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = sys.argv[1:]
model = pathlib.Path(words[words.index("--model") + 1])
how = (model / "behaviour").read_text()
(model / "argv").write_text(json.dumps(words))
(model / "env").write_text(json.dumps(dict(os.environ)))
child = subprocess.Popen(["sleep", "300"])  # an engine has more processes than one
(model / "pids").write_text(f"{os.getpid()} {child.pid}")
print("loading", how, flush=True)
if how == "oom":
    print("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", flush=True)
if how in ("oom", "fails"):
    sys.exit(1)
if how == "killed":
    os.kill(os.getpid(), 9)


class Handler(BaseHTTPRequestHandler):
    def answer(self, code, data):
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(503 if how == "never" else 200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer " + os.environ["VLLM_API_KEY"]:
            return self.answer(401, {"error": "who are you"})
        if how == "dies":
            print("EngineDeadError", flush=True)
            os._exit(3)
        if how == "hangs":
            time.sleep(300)
        if how == "nan":
            return self.answer(500, {"error": "Out of range float values are not JSON compliant: nan"})
        if how == "strange":
            return self.answer(200, {"choices": []})
        if "prompt_logprobs" in asked:
            logprob = -1.0 if how != "worse" else -1.5
            rows = None if how == "unscored" else [None, {"5": {"logprob": logprob}}, {"6": {"logprob": logprob}}]
            return self.answer(200, {"choices": [{"text": "", "prompt_logprobs": rows}]})
        text = "!!!!!!!!!!!!!!!!" if how == "garbled" else f" fine {asked['prompt']}"
        tokens = text.split(" ")
        told = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}
        self.answer(200, {"choices": [{"text": text, "logprobs": None if how == "unscored" else told}]})

    def log_message(self, *words):
        pass


ThreadingHTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
"""

REFERENCE = """
import json, pathlib, sys, time
ask = json.loads(pathlib.Path(sys.argv[2]).read_text())
how = (pathlib.Path(ask["model"]) / "behaviour").read_text()
print("reference", how, flush=True)
with open(ask["out"], "w") as out:
    if how == "cannot":
        out.write(json.dumps({"cannot": ["不会", "It cannot."]}) + "\\n")
        sys.exit(1)
    if how == "fails":
        print("safetensors_rust.SafetensorError: HeaderTooLarge", flush=True)
        sys.exit(1)
    out.write(json.dumps({"engine": "reference", "notes": [["注", "Noted."]]}) + "\\n")
    for one in ask["prompts"]:
        row = {"id": one["id"], "text": " fine", "tokens": [" fine"], "logprobs": [-1.0], "scored": [-2.0, 2]}
        out.write(json.dumps(row) + "\\n")
"""


def program(path, text, *arguments):
    """A file that starts a Python text with this Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    inner = path.with_name(f"{path.name}-text.py")
    inner.write_text(text)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{inner}" "$@"\n')
    path.chmod(0o755)


def stack(root: Path, *, tools=True) -> Path:
    """The folder of stacks with one in use."""
    own = root / "stacks" / "cpu-1.0"
    program(own / "venv" / "bin" / "python", SERVER)
    (own / "activate").write_text(f'export PATH="{own}/venv/bin:$PATH"\n')
    if tools:
        program(own / "msmodelslim" / "bin" / "python", REFERENCE)
    (root / "stacks" / "current").symlink_to("cpu-1.0")
    return root / "stacks"


def model(folder: Path, how="fine", *, quantized=False, **config) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 512, "hidden_size": 64}
    (folder / "config.json").write_text(json.dumps({**plain, **config}))
    (folder / "behaviour").write_text(how)
    if quantized:
        (folder / "quant_model_description.json").write_text("{}")
    return folder


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def left(folder: Path) -> list[int]:
    """Processes of the engine of that model which live."""
    path = folder / "pids"
    return [int(pid) for pid in path.read_text().split() if lives(int(pid))] if path.is_file() else []
