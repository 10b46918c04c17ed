"""Job payloads are signed with the server's own key. Plain code, the same on console and server."""

import hashlib
import hmac
import secrets


def sign(key: str, body: str) -> str:
    """Hex HMAC-SHA256 of `body`; `key` is hex."""
    return hmac.new(bytes.fromhex(key), body.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, body: str, mac: str) -> bool:
    return hmac.compare_digest(sign(key, body), mac)


NONCE, MAC = 16, 32


def seal(key: str, data: bytes) -> bytes:
    """`data` so that only who has the key can read or change it, whoever carries it: nonce, what is hidden, MAC."""
    nonce = secrets.token_bytes(NONCE)
    hidden = _hidden(key, nonce, data)
    return nonce + hidden + _mac(key, nonce + hidden)


def unseal(key: str, sealed: bytes) -> bytes:
    """Raises ValueError for what was not sealed with this key."""
    if len(sealed) < NONCE + MAC or not hmac.compare_digest(_mac(key, sealed[:-MAC]), sealed[-MAC:]):
        raise ValueError("not sealed with this key")
    return _hidden(key, sealed[:NONCE], sealed[NONCE:-MAC])


def _hidden(key: str, nonce: bytes, data: bytes) -> bytes:
    """`data` under a stream that the key and the nonce make; the same again undoes it."""
    own = hmac.new(bytes.fromhex(key), b"hide" + nonce, hashlib.sha256).digest()
    stream = bytearray()
    while len(stream) < len(data):
        stream += hmac.new(own, len(stream).to_bytes(8, "big"), hashlib.sha256).digest()
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def _mac(key: str, data: bytes) -> bytes:
    return hmac.new(hmac.new(bytes.fromhex(key), b"seal", hashlib.sha256).digest(), data, hashlib.sha256).digest()
