"""msModelSlim's command, and how it is run: nobody to ask, no network, each layer told of, its output whole."""

import codecs
import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deployments.artifacts.recipes import ENGINE
from deployments.stacks.cann_layer import with_env

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
ON_CPU = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # torch_npu without CANN would break `import torch`
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait take twice as long on busy cores (35 s for 20)
}
EVERY_S = 1.0
# A newer recipe works through the layers one by one; an older one tells of each layer's range, then counts batches.
LAYER = re.compile(r"""(?:Run processor \S+ for|layer:) ["']?(?:\w+\.)*layers\.(\d+)\b""")
BATCH = re.compile(r"(\d{1,3})%\|[^|]*\| *(\d+)/(\d+) \[")


def device(npus: int) -> str:
    """The tool's word for so many NPUs, of which it sees only its own: they are counted from 0."""
    if npus < 2:
        return "npu" if npus else "cpu"
    return f"npu:{','.join(map(str, range(npus)))}"


def command(
    tools: Path | str, *, source: str, save: str, device: str, quant_type: str = "", model_type: str = "",
    config: str = "", tags: tuple[str, ...] = (ENGINE,), trust: bool = False,
) -> list[str]:  # fmt: skip
    """The argument list. A recipe's file takes the place of the type; a conversion has no model type either."""
    argv = [f"{tools}/bin/msmodelslim", "quant", "--model_path", source, "--save_path", save, "--device", device]
    if model_type:
        argv += ["--model_type", model_type]
    argv += ["--config_path", config] if config else ["--quant_type", quant_type, "--tag", *tags]
    return [*argv, "--trust_remote_code", "True" if trust else "False"]


def environment(base: Mapping[str, str], *, cpu: bool) -> dict[str, str]:
    """Without what is our own Python's, and without a way to any hub."""
    kept = {name: value for name, value in base.items() if name not in ("PYTHONPATH", "ASCEND_REASON", "ASCEND_ITEMS")}
    return {**kept, **OFFLINE, **(ON_CPU if cpu else {})}


class Layers:
    """Hears which layer the tool is at. `feed` gives the line to print, '' where there is none or it was just said."""

    def __init__(self, total: int) -> None:
        self.total, self.shown, self.at = total, "", 0.0
        self.rest = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        *lines, self.rest = re.split(r"[\r\n]", self.rest + self.decoder.decode(data))
        self.rest = self.rest[-4096:]
        found = ""
        for line in lines:
            found = self._words(line) or found
        now = time.monotonic()
        if not found or found == self.shown or (now - self.at < EVERY_S and not self._is_last(found)):
            return ""
        self.shown, self.at = found, now
        return found

    def _words(self, line: str) -> str:
        if found := LAYER.search(line):
            n = int(found[1]) + 1
            whole = max(self.total, n)
            return f"layer {n} of {whole} 第 {n} 层，共 {whole} 层"
        bars = list(BATCH.finditer(line))
        if not bars or line.startswith("feature process"):
            return ""
        return f"batch {bars[-1][2]} of {bars[-1][3]} 第 {bars[-1][2]} 批，共 {bars[-1][3]} 批"

    def _is_last(self, words: str) -> bool:
        return bool(self.total) and words.startswith(f"layer {self.total} of ")


def run(argv: list[str], *, activate: str, cpu: bool, layers: int) -> int:
    """Start the tool, pass on all it prints, with a line of our own for each layer. Its exit code, as a shell has it.

    It stays in our process group, so that who ends the step ends it too.
    """
    print("$ " + " ".join(argv), flush=True)
    whole = list(with_env([activate], argv)) if activate else argv
    env = environment(os.environ, cpu=cpu)
    process = subprocess.Popen(
        whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, bufsize=0
    )
    assert process.stdout and process.stderr
    for number in (signal.SIGINT, signal.SIGTERM):  # the tool is sent them too; what it still says is passed on
        signal.signal(number, lambda _number, _frame: None)
    with selectors.DefaultSelector() as waiting:
        for stream, to in ((process.stdout, 1), (process.stderr, 2)):
            waiting.register(stream, selectors.EVENT_READ, (to, Layers(layers)))
        while waiting.get_map():
            for key, _events in waiting.select():
                data = os.read(key.fd, 65536)
                if not data:
                    waiting.unregister(key.fileobj)
                    continue
                to, heard = key.data
                _pass_on(to, data)
                if words := heard.feed(data):
                    print(f"▸ {words}", flush=True)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _pass_on(to: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(to, data) :]
