"""What a gateway's nginx and router are told. nginx asks for keys and counts what they use; the router balances.

A key is a file named by its SHA-256: new and revoked ones take effect with the next request, and nginx is not reloaded
for them. Nothing here starts a process.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("gateway.js")
POLICIES = ("cache_aware", "round_robin", "random", "consistent_hash")
DIGEST = re.compile(r"[0-9a-f]{64}")
HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|[0-9A-Fa-f:.]{2,45}")
MOST_BODY_MB = 512
HEALTH_S, HEALTH_FAILURES = 1, 2  # a dead replica leaves within 5 s
CONNECTORS = ("nixl", "mooncake", "moriio")


class BadSpec(ValueError):
    """What a gateway cannot be made of; the message names the field."""


@dataclass(frozen=True)
class Engine:
    """Where an engine listens. `role` is "", or "prefill" or "decode" where those are apart."""

    address: str
    port: int
    role: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True)
class Key:
    """`until` is in seconds of the epoch, 0 for ever; a key that is not `allowed` is for other deployments."""

    id: int
    digest: str
    until: int = 0
    allowed: bool = True
    rate: int = 0  # requests a minute, 0 for as many as they are

    def content(self) -> bytes:
        return json.dumps({"id": self.id, "until": self.until, "allowed": self.allowed, "rate": self.rate}).encode()


@dataclass(frozen=True)
class Spec:
    """A whole gateway. Without `nginx` the router alone answers, on loopback, and engines ask for their own key."""

    gateway: int
    deployment: int
    version: int
    port: int
    router_port: int
    metrics_port: int
    address: str = "127.0.0.1"
    policy: str = "cache_aware"
    engines: tuple[Engine, ...] = ()
    keys: tuple[Key, ...] = ()
    engine_key: str = ""
    connector: str = "nixl"
    nginx: bool = True
    body_mb: int = MOST_BODY_MB
    day_offset_s: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_apart(self) -> bool:
        """Whether prefill and decode are done by different engines."""
        return any(one.role for one in self.engines)


def read(data: Mapping[str, Any]) -> Spec:
    """Raises BadSpec. What is not known is left for newer agents."""
    try:
        known = {name: data[name] for name in Spec.__dataclass_fields__ if name in data}
        known["engines"] = tuple(Engine(**one) for one in data.get("engines", ()))
        known["keys"] = tuple(Key(**one) for one in data.get("keys", ()))
        spec = Spec(**known)
    except (TypeError, AttributeError) as error:
        raise BadSpec(str(error)[:200]) from error
    _check(spec)
    return spec


def _check(spec: Spec) -> None:
    numbers = ("gateway", "deployment", "version", "body_mb")
    wrong = [name for name in numbers if not _is_whole(getattr(spec, name), 1, 2**53)]
    wrong += [name for name in ("port", "router_port", "metrics_port") if not _is_whole(getattr(spec, name), 1, 65535)]
    wrong += ["address"] if not _is_host(spec.address) else []
    wrong += ["policy"] if spec.policy not in POLICIES else []
    wrong += ["connector"] if spec.connector not in CONNECTORS else []
    for one in spec.engines:
        if not _is_host(one.address) or not _is_whole(one.port, 1, 65535) or one.role not in ("", "prefill", "decode"):
            wrong.append("engines")
    for key in spec.keys:
        fits = isinstance(key.digest, str) and DIGEST.fullmatch(key.digest)
        if not (fits and all(_is_whole(n, 0, 2**53) for n in (key.id, key.until, key.rate))):
            wrong.append("keys")
    if not isinstance(spec.engine_key, str) or re.search(r'[\x00-\x1f"\\$]', spec.engine_key):
        wrong.append("engine_key")
    if wrong:
        raise BadSpec(f"not fit: {', '.join(dict.fromkeys(wrong))}")


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_host(value: object) -> bool:
    return isinstance(value, str) and HOST.fullmatch(value) is not None


def router_arguments(spec: Spec, *, alone: bool = False) -> list[str]:
    """Of `vllm-router`, without its name. Engines come and go by its API, but where prefill and decode are apart.

    `alone`: it is the one that clients reach.
    """
    port = spec.port if alone else spec.router_port
    made = ["--host", "127.0.0.1", "--port", str(port)]
    made += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(spec.metrics_port)]
    made += ["--policy", spec.policy, "--log-level", "warning"]
    # By default, up to 64 requests more go to one engine than to another for the sake of its cache.
    made += ["--balance-abs-threshold", "8", "--balance-rel-threshold", "1.2"] if spec.policy == "cache_aware" else []
    made += ["--health-check-interval-secs", str(HEALTH_S), "--health-check-timeout-secs", "2"]
    made += ["--health-failure-threshold", str(HEALTH_FAILURES), "--health-success-threshold", "1"]
    made += ["--retry-max-retries", "4", "--retry-initial-backoff-ms", "50", "--retry-max-backoff-ms", "1000"]
    made += ["--cb-failure-threshold", "3", "--cb-timeout-duration-secs", "2", "--cb-success-threshold", "1"]
    made += ["--worker-startup-timeout-secs", "5", "--worker-startup-check-interval", "1"]
    made += ["--request-timeout-secs", "86400", "--max-payload-size", str(spec.body_mb << 20)]
    if spec.is_apart:
        made += ["--vllm-pd-disaggregation", "--kv-connector", spec.connector]
        for one in spec.engines:
            made += ["--decode" if one.role == "decode" else "--prefill", one.url]
    return made


def error(message: str, kind: str, code: str) -> str:
    """As OpenAI's API has it."""
    body = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": body}, separators=(",", ":"))


MISSING = error(
    "You did not provide an API key. Send it in the header Authorization: Bearer KEY.",
    "invalid_request_error", "missing_api_key",
)  # fmt: skip
UNKNOWN = error("This API key is unknown or was revoked.", "invalid_request_error", "invalid_api_key")
EXPIRED = error("This API key has expired.", "invalid_request_error", "expired_api_key")
ELSEWHERE = error("This API key is not for this deployment.", "permission_error", "wrong_deployment")
TOO_MANY = error("Rate limit reached for this API key. Try again later.", "rate_limit_error", "rate_limit_exceeded")
TOO_BIG = error("The request is larger than this gateway takes.", "invalid_request_error", "request_too_large")
NOT_HERE = error("This gateway passes only /v1/… and /health.", "invalid_request_error", "unknown_url")
NO_ENGINE = error("No engine of this deployment can answer now. Try again.", "server_error", "no_engine")
BAD_REQUEST = error("The request cannot be read.", "invalid_request_error", "bad_request")


def rates(keys: Iterable[Key]) -> list[int]:
    """The different rates; nginx needs a zone for each, so only a new one of these takes a reload."""
    return sorted({key.rate for key in keys if key.rate and key.allowed})


def nginx_conf(
    spec: Spec,
    folder: Path,
    *,
    module: str = "",
    user: str = "",
    workers: int = 2,
    files: int = 1024,
) -> str:
    """The whole configuration, below `folder`; `module` is the file of njs, "" where it is built in."""
    limits = rates(spec.keys)
    return CONF.format(
        folder=folder,
        module=f'load_module "{module}";' if module else "",
        user=f"user {user};" if user else "",
        workers=workers,
        files=files,
        connections=max(256, min(16384, files // 2)),  # each request takes one to the client and one to the router
        listen=_listen(spec),
        zones="".join(ZONE.format(rate=rate) for rate in limits),
        limits="".join(f"            limit_req zone=r{rate} burst={max(rate - 1, 1)} nodelay;\n" for rate in limits),
        router_port=spec.router_port,
        body_mb=spec.body_mb,
        bearer=f"Bearer {spec.engine_key}" if spec.engine_key else "",
        **{name.lower(): globals()[name] for name in (
            "MISSING", "UNKNOWN", "EXPIRED", "ELSEWHERE", "TOO_MANY", "TOO_BIG", "NOT_HERE", "NO_ENGINE", "BAD_REQUEST",
        )},
    )  # fmt: skip


def _listen(spec: Spec) -> str:
    host = f"[{spec.address}]" if ":" in spec.address else spec.address
    return f"{host}:{spec.port}"


ZONE = """\
    map $key_rate $of_{rate} {{ default ""; {rate} $key_id; }}
    limit_req_zone $of_{rate} zone=r{rate}:1m rate={rate}r/m;
"""
# `if` holds nothing but `return` here, which is the one use of it that nginx's manual calls safe.
CONF = """\
daemon off;
pid "{folder}/nginx.pid";
error_log "{folder}/nginx.log" warn;
{module}
{user}
worker_processes {workers};
worker_rlimit_nofile {files};
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    server_tokens off;
    default_type application/json;
    client_body_temp_path "{folder}/tmp/body";
    proxy_temp_path "{folder}/tmp/proxy";
    fastcgi_temp_path "{folder}/tmp/fastcgi";
    uwsgi_temp_path "{folder}/tmp/uwsgi";
    scgi_temp_path "{folder}/tmp/scgi";
    js_path "{folder}";
    js_import gateway from gateway.js;
    js_set $key_id gateway.id;
    js_set $key_rate gateway.rate;
    js_set $verdict gateway.verdict;
    js_set $usage_prompt gateway.prompt;
    js_set $usage_completion gateway.completion;
    log_format usage escape=json
        '{{"t":$msec,"key":"$key_id","status":$status,"prompt":"$usage_prompt","completion":"$usage_completion"}}';
{zones}\
    limit_req_status 429;
    limit_req_log_level info;
    upstream router {{
        server 127.0.0.1:{router_port} max_fails=0;
        keepalive 128;
    }}
    server {{
        listen {listen};
        set $key_folder "{folder}/keys";
        client_max_body_size {body_mb}m;
        client_body_buffer_size 256k;
        large_client_header_buffers 8 16k;
        keepalive_timeout 75s;
        keepalive_requests 100000;
        error_page 400 494 @bad_request;
        error_page 404 405 @not_here;
        error_page 413 @too_big;
        error_page 429 @too_many;
        error_page 502 503 504 =503 @no_engine;
        location ~ ^/v1/(load_lora_adapter|unload_lora_adapter) {{ return 404 '{not_here}'; }}
        location /v1/ {{
            access_log "{folder}/usage.log" usage if=$key_id;
            # Only these: what an engine says itself, that it has no such model for instance, is passed on.
            error_page 413 @too_big;
            error_page 429 @too_many;
            error_page 502 503 504 =503 @no_engine;
            if ($request_uri !~ "^/v1/[A-Za-z0-9_./:%~-]*([?]|$)") {{ return 404 '{not_here}'; }}
            if ($request_uri ~* "^[^?]*(//|[.][.]|%2e|%2f|%5c|%00)") {{ return 404 '{not_here}'; }}
            if ($verdict = missing) {{ return 401 '{missing}'; }}
            if ($verdict = unknown) {{ return 401 '{unknown}'; }}
            if ($verdict = expired) {{ return 401 '{expired}'; }}
            if ($verdict = elsewhere) {{ return 403 '{elsewhere}'; }}
{limits}\
            js_body_filter gateway.watch buffer_type=buffer;
            proxy_pass http://router;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header Authorization "{bearer}";
            proxy_set_header X-Api-Key "";
            proxy_set_header Accept-Encoding "";
            proxy_buffering off;
            proxy_next_upstream off;
            proxy_intercept_errors on;
            proxy_connect_timeout 5s;
            proxy_read_timeout 86400s;
            proxy_send_timeout 600s;
        }}
        location = /health {{
            proxy_pass http://router/readiness;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Authorization "";
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_intercept_errors on;
            proxy_connect_timeout 2s;
        }}
        location / {{ return 404 '{not_here}'; }}
        location @bad_request {{ return 400 '{bad_request}'; }}
        location @not_here {{ return 404 '{not_here}'; }}
        location @too_big {{ return 413 '{too_big}'; }}
        location @too_many {{ add_header Retry-After 5 always; return 429 '{too_many}'; }}
        location @no_engine {{ add_header Retry-After 2 always; return 503 '{no_engine}'; }}
    }}
}}
"""
