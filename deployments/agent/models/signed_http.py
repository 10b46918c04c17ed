"""How the two ends of a copy know each other: each request and each list is signed with the key of this one copy.

A request is `X-Signed: <nonce>.<HMAC of nonce, path and range>`. The key never travels between them: it came from the
console, sealed for each of the two servers.
"""

import hashlib
import hmac
import secrets

HEADER = "X-Signed"


def key_of(seed: str, pair: str) -> str:
    """What both ends of the copy of that number sign with, made of the console's seed. Hex."""
    return mac(seed, "copy", pair)


def mac(key: str, *words: str) -> str:
    """Hex; `key` is hex."""
    return hmac.new(bytes.fromhex(key), "\n".join(words).encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def sign(key: str, path: str, ranged: str) -> str:
    nonce = secrets.token_hex(16)
    return f"{nonce}.{mac(key, 'ask', nonce, path, ranged)}"


def is_signed(key: str, header: str, path: str, ranged: str) -> bool:
    nonce, _dot, found = header.partition(".")
    return len(nonce) == 32 and same(mac(key, "ask", nonce, path, ranged), found)


def same(wanted: str, found: str) -> bool:
    """Whether both are the same; anybody may send anything, and the comparison of texts raises for all but ASCII."""
    return hmac.compare_digest(wanted.encode(), found.encode(errors="replace"))


def answer(key: str, header: str, body: str) -> str:
    """What signs an answer to just that request, so that no older one can stand for it."""
    return mac(key, "answer", header, body)
