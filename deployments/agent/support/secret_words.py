"""Secrets in a text: tokens, keys and passwords by the words before them, and by what they look like."""

import re

MASK = "•••"
WORDS = ("passw", "passphrase", "secret", "token", "key", "credential")
LOGINS = ("bearer", "basic", "authorization")
LOOKS = ("hf_", "sk-", "ac_", "ghp_", "AKIA", "eyJ", "ms-")
NAMED = re.compile(
    r"""(?i)((?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)"""
    r"""s?["']?[ \t]*(?:=|:(?!/))[ \t]*)(?:"[^"\n]*"|'[^'\n]*'|[^\s,;&"')\]}]+)"""
)
FLAG = re.compile(r"""(?i)(--?(?:[\w-]{1,40}-)?(?:password|token|api-key|secret|key)[ =])(?!-)[^\s,'"\]]+""")
LISTED = re.compile(r"""(?i)(["']--?(?:[\w-]{1,40}-)?(?:password|token|api-key|secret)["'],[ \t]*["'])[^"'\n]*""")
BEARER = re.compile(
    r"(?i)\b(authorization[ \t]*[:=][ \t]*|bearer[ \t]+|basic[ \t]+)(?:bearer[ \t]+|basic[ \t]+)?[A-Za-z0-9._~+/=-]{6,}"
)
SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ac_[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*|ms-[0-9a-f]{8}-[0-9a-f-]{20,})"
)
LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"']*:[^\s/@\"']+@")
WORD = re.compile(r"[\w-]*$")
COUNTS = re.compile(r"(?i)(?:max|num|min|total|per|prompt|completion|generated|batched|eos|bos|pad)")


def without_secrets(line: str) -> str:
    """The line with each secret replaced. Most lines can hold none, and are not looked at closer."""
    low = line.lower()
    if any(word in low for word in WORDS):
        line = NAMED.sub(_named, line)
        line = FLAG.sub(rf"\1{MASK}", LISTED.sub(rf"\1{MASK}", line))
    if any(word in low for word in LOGINS):
        line = BEARER.sub(rf"\1{MASK}", line)
    if "@" in line:
        line = LOGIN.sub(rf"\1{MASK}@", line)
    return SHAPES.sub(MASK, line) if any(look in line for look in LOOKS) else line


def _named(found: "re.Match[str]") -> str:
    """Numbers of tokens are no tokens: `max_num_batched_tokens=8192` says how an engine was set."""
    value = found[0][len(found[1]) :].strip("\"'")
    before = WORD.search(found.string, max(0, found.start() - 40), found.start())
    counts = found[1][:5].lower() == "token" and COUNTS.match(before[0] if before else "")
    if counts or value.replace(".", "").isdigit() or value in ("None", "null", "True", "False", MASK):
        return found[0]
    return found[1] + MASK
