"""HTTP as downloads need it: ranges, redirects to other hosts without the token, authorities of the site, time-outs.

A token goes to the very origin it was given for, and by https only unless that origin was written with http://.
"""

import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from deployments.artifacts import BadModel
from deployments.artifacts.sources import Broken, OutOfRange
from deployments.stacks import indexes
from deployments.steps import Text

PIECE = 2 << 20  # large ones, so that reader and digest seldom wait for each other
SLOWEST = 512  # bytes a second, over the time of a stall
MOST_REDIRECTS = 8
MOST_ANSWER = 32 << 20  # of a listing
REDIRECTS = (301, 302, 303, 307, 308)
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
AGENT = "ascend-console"


def stall_s() -> float:
    """Seconds without a byte after which a connection counts as dead; tests set ASCEND_STALL_S."""
    return float(os.environ.get("ASCEND_STALL_S", "60"))


def origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        return None


@dataclass
class Web:
    """`tokens`: {host, or origin with its scheme: token}; `ca` is PEM. `called` are the origins that were asked."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    ca: str = ""
    called: list[str] = field(default_factory=list)
    straight: bool = False  # by no proxy

    def __post_init__(self) -> None:
        context = ssl.create_default_context(cafile=indexes.file_of_known(os.environ) or None)
        if self.ca:
            context.load_verify_locations(cadata=self.ca)
        proxies = [urllib.request.ProxyHandler({})] if self.straight else []
        self.opener = urllib.request.build_opener(_Stay(), urllib.request.HTTPSHandler(context=context), *proxies)

    def token_for(self, url: str) -> str:
        parts = urlsplit(url)
        by_host = self.tokens.get((parts.hostname or "").lower(), "") if parts.scheme == "https" else ""
        return self.tokens.get(origin(url), "") or by_host

    def open(self, url: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> "Answer":
        """The answer behind all redirects. Raises Broken, BadModel."""
        for _again in range(MOST_REDIRECTS):
            _check(url)
            if origin(url) not in self.called:
                self.called.append(origin(url))
            found = self._ask(url, headers or {}, method)
            if isinstance(found, Answer):
                return found
            url = urljoin(url, found)
        raise Broken(f"{origin(url)} redirects in a circle")

    def _ask(self, url: str, headers: Mapping[str, str], method: str) -> "Answer | str":
        """The answer, or where it redirects to."""
        request = urllib.request.Request(url, method=method, headers={"User-Agent": AGENT, **headers})
        request.add_header("Accept-Encoding", "identity")
        for name, value in _credentials(self.token_for(url)).items():
            request.add_unredirected_header(name, value)
        try:
            return Answer(url, self.opener.open(request, timeout=stall_s()))
        except urllib.error.HTTPError as error:
            where = error.headers.get("Location", "")
            error.close()
            if error.code in REDIRECTS and where:
                return where
            raise self._refused(url, error) from error
        except urllib.error.URLError as error:
            raise _unreached(url, error.reason) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _unreached(url, error) from error

    def _refused(self, url: str, error: urllib.error.HTTPError) -> Exception:
        host, code = origin(url), error.code
        if code in (408, 425, 429) or code >= 500:
            after = error.headers.get("Retry-After", "")
            return Broken(f"{host}: HTTP {code}", float(after) if after.isdigit() and len(after) < 4 else 0.0)
        if code == 416:
            return OutOfRange("it is shorter than what lies here")
        if code in (401, 403):
            with_token = bool(self.token_for(url))
            return BadModel(
                Text(
                    f"{host} 不允许访问（HTTP {code}）。" + ("控制台的令牌无效或没有权限。" if with_token else "")
                    + "请在控制台用 MODEL_TOKENS 设置有权限的令牌，并在该网站同意模型的条款，再重试。",
                    f"{host} does not let us in (HTTP {code}{', with the token of this site' if with_token else ''}). "
                    "Set a token that may read it as MODEL_TOKENS of the console, accept the model's terms there, "
                    "then try again.",
                )
            )  # fmt: skip
        return NotThere(
            Text(
                f"{host} 没有这个内容（HTTP {code}）：{urlsplit(url).path[:200]}。请检查名称和版本。",
                f"{host} does not have it (HTTP {code}): {urlsplit(url).path[:200]}. Look at its name and revision.",
            )
        )

    def json(self, url: str) -> tuple[Any, str]:
        """What is answered there, and where the next page is ('' for none). Raises Broken, BadModel."""
        answer = self.open(url, {"Accept": "application/json"})
        try:
            return json.loads(answer.read_all()), _next_page(url, answer.header("Link"))
        except (ValueError, RecursionError) as error:
            raise not_it(url, answer.header("Content-Type")) from error
        finally:
            answer.close()


class NotThere(BadModel):
    """HTTP 404 and its like."""


class Answer:
    """The Stream of an answer. `total` is the length of the whole file, `begins` where this part of it begins."""

    def __init__(self, url: str, response: Any) -> None:
        self.url, self.response = url, response
        self.status: int = response.status
        length = self.header("Content-Length")
        self.left = int(length) if length.isdigit() and len(length) < 19 else None
        self.begins, self.total = 0, self.left
        self.tag = self.header("ETag") or self.header("Last-Modified")
        self.since, self.came = time.monotonic(), 0
        if self.status == 206:
            self._read_range()
        encoding = self.header("Content-Encoding")
        if encoding not in ("", "identity"):
            self.left = self.total = None
            raise Broken(f"{origin(url)} packs what it sends ({encoding[:40]})")

    def header(self, name: str) -> str:
        return (self.response.headers.get(name) or "").strip()

    def _read_range(self) -> None:
        match = RANGE.fullmatch(self.header("Content-Range"))
        if match is None or int(match[2]) < int(match[1]):
            raise Broken(f"{origin(self.url)} does not say which part it sends")
        self.begins = int(match[1])
        self.total = int(match[3]) if match[3] != "*" else None

    def read(self) -> bytes:
        """Raises Broken where it breaks off, stalls, or comes too slowly to ever end."""
        want = PIECE if self.left is None else min(PIECE, self.left)
        if not want:
            return b""
        try:
            data: bytes = self.response.read1(want)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _unreached(self.url, error) from error
        if self.left is not None:
            if not data:
                raise Broken(f"{origin(self.url)} broke off, {self.left:,} bytes before the end")
            self.left -= len(data)
        self._check_speed(len(data))
        return data

    def _check_speed(self, count: int) -> None:
        self.came += count
        took = time.monotonic() - self.since
        if took >= stall_s():
            if self.came < SLOWEST * took and self.left != 0:
                raise Broken(f"{origin(self.url)} sent only {self.came:,} bytes in {took:.0f} s")
            self.since, self.came = time.monotonic(), 0

    def read_all(self, most: int = MOST_ANSWER) -> bytes:
        """Raises Broken, and BadModel where it is longer."""
        found = bytearray()
        while data := self.read():
            found += data
            if len(found) > most:
                raise not_it(self.url, f"{most >> 20} MB")
        return bytes(found)

    def close(self) -> None:
        self.response.close()


def not_it(url: str, what: str) -> BadModel:
    """Something answers, and it is not what was asked for: a proxy, a login page."""
    return BadModel(
        Text(
            f"{origin(url)} 的回答不是所要的内容（{what[:80] or '—'}）。请检查地址，以及中间的代理或登录页。",
            f"{origin(url)} answers with something else than was asked for ({what[:80] or '—'}). Look at the address, "
            "and for a proxy or login page in between.",
        )
    )


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise BadModel(
            Text(f"“{url[:200]}”不是 http(s) 地址。", f"“{url[:200]}” is no http(s) address.")
        )  # fmt: skip


def _credentials(token: str) -> dict[str, str]:
    """A token as hubs take it; `USER:PASSWORD` for a web server that asks for both."""
    if not token:
        return {}
    if ":" in token:
        import base64

        return {"Authorization": "Basic " + base64.b64encode(token.encode()).decode()}
    return {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"}  # the latter is ModelScope's


def _unreached(url: str, reason: object) -> Exception:
    host = origin(url)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return BadModel(
            Text(
                f"{host} 的证书不受信任（{reason.verify_message}）。请用 MODEL_HUB_CA 指定签发它的机构，或检查代理。",
                f"The certificate of {host} is not trusted ({reason.verify_message}). Name its authority as "
                "MODEL_HUB_CA of the console, or look for a proxy in between.",
            )
        )
    if isinstance(reason, (TimeoutError, socket.timeout)):
        return Broken(f"{host} has not answered for {stall_s():g} s")
    return Broken(f"{host}: {str(reason)[:200] or type(reason).__name__}")


def _next_page(url: str, link: str) -> str:
    """Of `Link: <address>; rel="next"`; another origin is not followed."""
    match = re.search(r'<([^<>]{1,2000})>;\s*rel="?next"?', link)
    found = urljoin(url, match[1]) if match else ""
    return found if found and origin(found) == origin(url) else ""
