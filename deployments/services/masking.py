"""Secrets in what leaves the console as JSON: what is called like one, and what looks like one, becomes ***.

Lines of logs are masked by agents before they are sent; this is for parameters, settings and facts.
"""

import re
from typing import Any

MASKED = "***"
WORDS = {
    "password", "passwd", "passphrase", "secret", "token", "apikey", "sealed", "credential", "credentials",
    "authorization", "cookie", "key",
}  # fmt: skip
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
LOOKS = re.compile(
    r"(?P<before>://[^/\s:@]{0,100}:)[^/\s@]{1,500}(?=@)"
    r"|(?P<scheme>\b[Bb]earer\s+)\S{8,500}"
    r"|\b(?:hf_|sk-|ac_|ghp_|gho_|glpat-|AKIA)[\w-]{12,500}"
)
ASSIGNED = re.compile(r"(?P<name>-{0,2}[\w-]{1,80})=(?P<value>.+)", re.DOTALL)


def masked(value: Any, name: str = "") -> Any:
    """A copy of JSON without its secrets; `name` is what the value is called."""
    if isinstance(value, dict):
        return {str(key): masked(one, name if is_secret(name) else str(key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return _list(list(value), name)
    if isinstance(value, str):
        return MASKED if value and is_secret(name) else text(value)
    return value


def _list(values: list[Any], name: str) -> list[Any]:
    """Of an argument list what follows `--api-key` is a secret as well."""
    made, before = [], ""
    for value in values:
        flag = before if before.startswith("-") and "=" not in before else name
        made.append(masked(value, flag))
        before = value if isinstance(value, str) else ""
    return made


def text(value: str) -> str:
    """A string without what looks like a secret, or is given as one: `--api-key=…`, `HF_TOKEN=…`."""
    given = ASSIGNED.fullmatch(value)
    if given and is_secret(given["name"]):
        return f"{given['name']}={MASKED}"
    return LOOKS.sub(lambda found: f"{found['before'] or found['scheme'] or ''}{MASKED}", value)


def is_secret(name: str) -> bool:
    """Whether something of that name is one: api_key, HF_TOKEN, --redis-password, but not max_tokens or tokenizer."""
    return any(word.lower() in WORDS for word in WORD.findall(name[:200]))
