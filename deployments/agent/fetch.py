"""Ask the console for something; over TLS only where it has the key that the pasted command names.

    python3 fetch.py URL FILE [PIN]

Stands alone and runs on Python 3.7: a server may have no newer one before it gets one from the console.
Proxies are passed by: the console is inside.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import shutil
import ssl
import sys
from urllib.parse import urlsplit


class WrongKey(OSError):
    """What answers has another key than the console."""


def _element(data: bytes, at: int) -> tuple[int, int]:
    """(start of the content, end) of the DER element at `at`."""
    length, start = data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    return start, start + length


def pin_of(certificate: bytes) -> str:
    """`sha256//…` of the public key in a certificate (DER), as `curl --pinnedpubkey` takes it."""
    at = _element(certificate, 0)[0]  # Certificate
    at = _element(certificate, at)[0]  # TBSCertificate
    if certificate[at] == 0xA0:  # its version is optional
        at = _element(certificate, at)[1]
    for _skipped in ("serial number", "signature algorithm", "issuer", "validity", "subject"):
        at = _element(certificate, at)[1]
    key = certificate[at : _element(certificate, at)[1]]
    return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode()


def _has_key(sock: ssl.SSLSocket, pin: str) -> bool:
    certificate = sock.getpeercert(True)
    return certificate is not None and pin_of(certificate) == pin


def ask(
    method: str, url: str, pin: str = "", body: bytes | None = None, timeout_s: float = 20.0, language: str = "en"
) -> http.client.HTTPResponse:
    """The answer, its body unread. Raises OSError (WrongKey is one) and http.client.HTTPException."""
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, pin, timeout_s)
    connection.connect()
    if pin and not (isinstance(connection.sock, ssl.SSLSocket) and _has_key(connection.sock, pin)):
        connection.close()
        raise WrongKey("what answers at this address does not have the console's key")
    connection.request(method, parts.path or "/", body, {"User-Agent": "ascend-console", "Accept-Language": language})
    return connection.getresponse()


def _connection(scheme: str, host: str, port: int | None, pin: str, timeout_s: float) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context()
    if pin:  # the key itself is compared, which says more than any authority
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def main(argv: list[str]) -> int:
    """Write the answer to a file and its status to standard output."""
    url, path, pin = (*argv, "")[:3]
    try:
        answer = ask("GET", url, pin)
        with open(path, "wb") as file:  # noqa: PTH123 - Python 3.7
            shutil.copyfileobj(answer, file)
    except (OSError, http.client.HTTPException) as error:
        print(error, file=sys.stderr)
        return 1
    print(answer.status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
