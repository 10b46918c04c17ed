"""TLS in front of the bundled Valkey, which has none: stunnel, or nginx with its stream module, whichever is there.

Nothing here starts a process; `manage.py up` hands the argument list to its supervisor.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from console import valkey
from console.environment import BadSetting

FIRST_PORT = 6380
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
MODULES = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules")
# Two connections of three descriptors for each agent; a login shell's soft limit of 1024 would end at 500 of them.
RAISE_LIMIT = (
    'n=$(ulimit -Hn); case $n in unlimited) n=65536 ;; esac; [ "$n" -le 65536 ] || n=65536; ulimit -n "$n"; exec "$@"'
)


class Front(NamedTuple):
    """From an address and port of this machine to a port of its loopback."""

    bind: str
    port: int
    to_port: int
    chain: Path
    key: Path


STUNNEL = """\
foreground = yes
syslog = no
debug = warning
pid =
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
{libwrap}
[redis]
accept = {front.bind}:{front.port}
connect = 127.0.0.1:{front.to_port}
cert = {front.chain}
key = {front.key}
sslVersionMin = TLSv1.2
TIMEOUTclose = 0
"""
# One process, so that none is left over when it is killed; the supervisor starts it again.
NGINX = """\
daemon off;
master_process off;
pid "{folder}/nginx.pid";
error_log stderr warn;
{module}
events {{ worker_connections 16384; }}
stream {{
    server {{
        listen {listen} ssl;
        proxy_pass 127.0.0.1:{front.to_port};
        proxy_timeout 12h;
        tcp_nodelay on;
        ssl_certificate "{front.chain}";
        ssl_certificate_key "{front.key}";
        ssl_protocols TLSv1.2 TLSv1.3;
    }}
}}
"""


def prepare(folder: Path, front: Front, program: str = "") -> list[str]:
    """Write the configuration into `folder`; the argument list. Raises BadSetting as `find` does."""
    found = find(program)
    folder.mkdir(parents=True, exist_ok=True)
    argv = _nginx(folder, front, found) if "nginx" in Path(found).name else _stunnel(folder, front, found)
    return ["/bin/sh", "-c", RAISE_LIMIT, "sh", *argv]


def find(program: str = "") -> str:
    """The program that is to give TLS: the one that is named, else one that is there. Raises BadSetting."""
    if program and "nginx" in Path(program).name and stream_module(program) is None:
        raise BadSetting(f"TLS_FRONT={program} has no stream module. Install it (libnginx-mod-stream), or stunnel.")
    found = program or _find()
    if not found:
        raise BadSetting(
            "Redis would be reached without TLS: the bundled Valkey has none, and there is neither stunnel nor nginx "
            "with its stream module. Install one (apt install stunnel4, yum install stunnel), name a Redis with TLS "
            "(REDIS_URL=rediss://…), or do without in a network that you trust: ALLOW_PLAINTEXT=1"
        )
    return found


def _find() -> str:
    """stunnel is asked for first: an nginx may lack the module."""
    path = f"{os.environ.get('PATH', '')}:{PATHS}"
    for name in ("stunnel", "stunnel4", "stunnel5"):
        if found := shutil.which(name, path=path):
            return found
    nginx = shutil.which("nginx", path=path)
    return nginx if nginx and stream_module(nginx) is not None else ""


def _stunnel(folder: Path, front: Front, program: str) -> list[str]:
    path = folder / "stunnel.conf"
    # Where it was built with it, it would look into /etc/hosts.allow; where not, it does not know the word.
    libwrap = "libwrap = no" if "LIBWRAP" in _said(program, "-version") else ""
    valkey.write_private(path, STUNNEL.format(front=front, libwrap=libwrap))
    return [program, str(path)]


def _nginx(folder: Path, front: Front, program: str) -> list[str]:
    path, module = folder / "nginx.conf", stream_module(program)
    load = f'load_module "{module}";' if module else ""
    listen = f"[{front.bind}]:{front.port} ipv6only=off" if ":" in front.bind else f"{front.bind}:{front.port}"
    valkey.write_private(path, NGINX.format(front=front, folder=folder, module=load, listen=listen))
    return [program, "-p", str(folder), "-c", str(path)]


def stream_module(program: str) -> str | None:
    """The file that nginx must load for streams with TLS; "" where it is built in, None where there is none."""
    built = _said(program, "-V")
    if "--with-stream_ssl_module" not in built:
        return None
    if re.search(r"--with-stream(\s|$)", built):
        return ""
    given = re.search(r"--modules-path=(\S+)", built)
    places = [*([given[1]] if given else []), *MODULES]
    files = [Path(place) / "ngx_stream_module.so" for place in places]
    return next((str(file) for file in files if file.exists()), None)


def _said(program: str, option: str) -> str:
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def choose_port(bind: str, kept: Path, asked: int) -> int:
    """The port of every start so far, for joined servers know it; at first, the first free one from FIRST_PORT."""
    if asked:
        if not valkey.is_free(bind, asked):
            raise BadSetting(
                f"REDIS_TLS_PORT={asked} is used by another program on {bind}. Stop it, or choose another."
            )
        return asked
    text = kept.read_text().strip() if kept.exists() else ""
    if text.isdigit():
        if not valkey.is_free(bind, int(text)):
            raise BadSetting(
                f"Port {text} on {bind}, where joined servers reach Redis, is used by another program. Stop it, or set "
                "REDIS_TLS_PORT to a free one and let the servers join again."
            )
        return int(text)
    port = next((one for one in range(FIRST_PORT, FIRST_PORT + 1000) if valkey.is_free(bind, one)), 0)
    if not port:
        raise BadSetting(f"No port from {FIRST_PORT} on is free on {bind}. Set REDIS_TLS_PORT to a free one.")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(f"{port}\n")
    return port
