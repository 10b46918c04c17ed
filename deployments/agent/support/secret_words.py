"""Secrets in a line: tokens, keys and passwords by the words before them, and by what they look like."""

import re

MASK = "•••"
NAMED = re.compile(
    r"""(?i)(["']?\b[\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"""
    r"""credential)s?["']?\s*(?:=|:(?!/)|\s(?==))\s*)(?:"[^"]*"|'[^']*'|[^\s,;&"')\]}]+)"""
)
FLAG = re.compile(r"""(?i)(--?(?:[\w-]*-)?(?:password|token|api-key|secret|key)[ =])(?!-)[^\s,'"\]]+""")
LISTED = re.compile(r"""(?i)(["']--?(?:[\w-]*-)?(?:password|token|api-key|secret)["'],\s*["'])[^"']*""")
BEARER = re.compile(r"(?i)\b(authorization\s*[:=]\s*|bearer\s+|basic\s+)(?:bearer\s+|basic\s+)?[A-Za-z0-9._~+/=-]{6,}")
SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ac_[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|ms-[0-9a-f]{8}-[0-9a-f-]{20,})"
)
LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"']*:[^\s/@\"']+@")
COUNTS = re.compile(r"(?i)^[\w-]*(?:max|num|min|total|per|prompt|completion|generated|batched|eos|bos|pad)[\w-]*tokens?")


def without_secrets(text: str) -> str:
    """The line with each secret replaced."""
    text = NAMED.sub(_named, text)
    text = LISTED.sub(rf"\1{MASK}", text)
    text = FLAG.sub(rf"\1{MASK}", text)
    text = BEARER.sub(rf"\1{MASK}", text)
    text = LOGIN.sub(rf"\1{MASK}@", text)
    return SHAPES.sub(MASK, text)


def _named(found: "re.Match[str]") -> str:
    """Numbers of tokens are no tokens: `max_num_batched_tokens=8192` says how an engine was set."""
    value = found[0][len(found[1]) :].strip("\"'")
    if COUNTS.match(found[1].lstrip("\"'")) or value.replace(".", "").isdigit() or value in ("None", "null", MASK):
        return found[0]
    return found[1] + MASK
