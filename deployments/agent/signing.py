"""Job payloads are signed with the server's own key. Plain code, the same on console and server."""

import hashlib
import hmac


def sign(key: str, body: str) -> str:
    """Hex HMAC-SHA256 of `body`; `key` is hex."""
    return hmac.new(bytes.fromhex(key), body.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, body: str, mac: str) -> bool:
    return hmac.compare_digest(sign(key, body), mac)
