"""What a server that joins looks at first: the console, its own clock, Redis. What stops it is a sentence."""

import email.utils
import http.client
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from deployments.agent import config, fetch, tls_words
from deployments.agent.config import spoken
from deployments.steps import Text

MAX_OFFSET_S = 60.0


class Stopped(Exception):
    """What keeps this server from joining. `code` is what the console's page calls it."""

    def __init__(self, code: str, zh: str, en: str) -> None:
        super().__init__(en)
        self.code = code
        self.text = Text(zh, en)


def say(zh: str, en: str) -> None:
    print(spoken(Text(zh, en)), flush=True)


@dataclass(frozen=True)
class Console:
    """The console, as this enrolment may ask it."""

    url: str
    token: str
    pin: str

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, str]:
        """(status, body, the Date header). Raises Stopped where there is no answer."""
        language = spoken(Text("zh-hans", "en"))
        url = f"{self.url}/join/{self.token}/{path}"
        try:
            answer = fetch.ask(method, url, self.pin, body, language=language)
            return answer.status, answer.read(), answer.headers.get("Date") or ""
        except socket.gaierror as error:
            raise _no_name(urlsplit(self.url).hostname or "", error) from error
        except fetch.WrongKey as error:
            raise Stopped(
                "tls",
                "应答方的密钥不是控制台的密钥，可能有代理或他人冒充。请在控制台重新生成命令。",
                "What answers does not have the console's key: a proxy, or somebody else. Make a new command.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if why := tls_words.explain(error):
                raise Stopped(why[0], *why[1]) from error
            raise Stopped(
                "port",
                f"连不到控制台 {self.url}（{error}）。请检查地址、端口与防火墙。",
                f"The console at {self.url} cannot be reached ({error}). Check address, port and firewall.",
            ) from error

    def report(self, code: str, detail: str) -> None:
        try:
            self.ask("POST", "problem", f"{code} {detail}".encode())
        except Stopped:
            pass  # the terminal has it


def _no_name(host: str, error: Exception) -> Stopped:
    return Stopped(
        "name",
        f"无法解析名称 {host}（{error}）。请检查 DNS，或把它写入 /etc/hosts。",
        f"The name {host} cannot be resolved ({error}). Check DNS, or put it into /etc/hosts.",
    )


def check_clock(console: Console) -> None:
    """Say so where the clock is off; it keeps nobody from joining, since the console goes by its own."""
    _status, _body, date = console.ask("GET", "state")
    try:
        offset_s = time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(offset_s) > MAX_OFFSET_S:
        words = f"{offset_s:+.0f} s"
        say(
            f"注意：本机时钟与控制台相差 {words}。作业不受影响，但日志时间会错；请校时（chronyd）。",
            f"Note: this server's clock is {words} off the console's. Jobs go on, but their logs show wrong times; "
            "set it (chronyd).",
        )
        console.report("clock", words)


def check_redis(found: config.Config) -> bool:
    """True where Redis takes these credentials, False where they are no longer good. Raises Stopped."""
    import redis

    parts = urlsplit(found.redis_url)
    host, port = parts.hostname or "", parts.port or 6379
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise _no_name(host, error) from error
    try:
        client = redis.Redis.from_url(
            found.redis_url, socket_timeout=10, socket_connect_timeout=10, retry=None, **found.redis_options
        )
        client.ping()
        client.close()
    except redis.AuthenticationError:
        return False
    except (redis.RedisError, OSError) as error:
        if why := tls_words.explain(error):
            raise Stopped(why[0], *why[1]) from error
        raise Stopped(
            "redis",
            f"连不到控制台的 Redis {host}:{port}（{error}）。请放通本机到该端口的 TCP 连接。",
            f"The console's Redis at {host}:{port} cannot be reached ({error}). Let this server reach that TCP port.",
        ) from error
    return True
