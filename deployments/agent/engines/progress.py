"""What an engine's lines tell while it loads: how far it is, and what it found out about itself. Pure.

The words are those of vLLM 0.23 with vLLM-Ascend 0.23 and of vLLM 0.32 on CPUs.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from deployments.steps import Text

WORDS = (
    b"checkpoint shards", b"Capturing", b"KV cache", b"Maximum concurrency", b"weights took", b"max model len",
    b"startup complete", b"version ", b"LLM engine (v",
)  # fmt: skip
COUNTED = re.compile(
    rb"(checkpoint shards|Capturing)[^\r\n|]{0,120}?\d%[^\r\n|]{0,40}\|(?:[^\r\n|]{0,400}\|)?\s*(\d+)/(\d+)"
)
TITLES = {
    b"checkpoint shards": Text("读取权重", "Loading weights"),
    b"Capturing": Text("捕获计算图", "Capturing graphs"),
}
FACTS: tuple[tuple[str, type, re.Pattern[bytes]], ...] = (
    ("version", str, re.compile(rb"(?:\bversion |LLM engine \(v)(\d[\w.+-]{0,40})")),
    ("max_model_len", int, re.compile(rb"(?:Using max model len |Maximum concurrency for )([\d,]{1,20})")),
    ("weights_gb", float, re.compile(rb"weights took ([\d.]{1,12}) (?:GB|GiB)")),
    ("available_kv_gib", float, re.compile(rb"Available KV cache memory: (-?[\d.]{1,12}) GiB")),
    ("available_kv_gib", float, re.compile(rb"Explicitly set \(([\d.]{1,12})/[\d.]+\) GiB for KV cache")),
    ("kv_tokens", int, re.compile(rb"KV cache size: ([\d,]{1,20}) tokens")),
    ("max_concurrency", float, re.compile(rb"Maximum concurrency for [\d,]+ tokens per request: ([\d.,]{1,20})x")),
)
NAMES = ("version", "kv_tokens", "max_concurrency", "weights_gb", "available_kv_gib", "max_model_len")
STARTED = b"Application startup complete"
LONGEST = 4096


@dataclass
class Progress:
    """`feed` the bytes as they come; `facts` and `counted` are what is known by now, None what is not."""

    facts: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(NAMES))
    counted: dict[str, Any] | None = None
    is_started: bool = False
    rest: bytes = b""

    def feed(self, data: bytes) -> bool:
        """Whether something became known, or moved on."""
        data = self.rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"]")) + 1
        self.rest = data[end:][-LONGEST:]
        block = data[:end]
        if not any(word in block for word in WORDS):
            return False
        before = (dict(self.facts), self.counted, self.is_started)
        self._look(block)
        return before != (self.facts, self.counted, self.is_started)

    def _look(self, block: bytes) -> None:
        for found in COUNTED.finditer(block):
            done, of = int(found[2][:9]), int(found[3][:9])
            if 0 <= done <= of and of:
                self.counted = {"what": list(TITLES[found[1]]), "done": done, "of": of}
        for name, kind, pattern in FACTS:
            for found in pattern.finditer(block):
                self._learn(name, kind, found[1].decode(errors="replace"))
        if STARTED in block:
            self.is_started, self.counted = True, None

    def _learn(self, name: str, kind: type, word: str) -> None:
        try:
            self.facts[name] = word.rstrip(".") if kind is str else kind(word.replace(",", ""))
        except ValueError:
            pass  # 1.2.3 is no number
