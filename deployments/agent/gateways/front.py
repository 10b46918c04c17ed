"""The nginx of a gateway: its configuration, the files of its keys, and the log of usage that is begun anew."""

import hashlib
import os
import pwd
import re
import resource
import shutil
import subprocess
from pathlib import Path

from deployments.agent import spool
from deployments.agent.gateways.folder import Programs
from deployments.serving import gateway_conf
from deployments.serving.gateway_conf import Spec

PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
MODULES = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules")
NJS = "ngx_http_js_module.so"


def find() -> tuple[str, str] | None:
    """(nginx, the file of njs or "" where it is built in); None where one of them is missing."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:{PATHS}")
    if program is None:
        return None
    built = _said(program, "-V")
    if re.search(r"--add-module=\S*njs", built):
        return program, ""
    given = re.search(r"--modules-path=(\S+)", built)
    places = [*([given[1]] if given else []), *MODULES]
    files = [Path(place) / NJS for place in places]
    return next(((program, str(file)) for file in files if file.exists()), None)


def _said(program: str, *options: str) -> str:
    try:
        done = subprocess.run(
            [program, *options], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout + done.stderr


def write_keys(folder: Path, spec: Spec) -> None:
    """A file for each key, and none that is not there any more: with the next request it is dead."""
    keys = folder / "keys"
    keys.mkdir(exist_ok=True, mode=0o700)
    for key in spec.keys:
        path, content = keys / key.digest, key.content()
        if not path.exists() or path.read_bytes() != content:
            spool.write_synced(path, content)
    wanted = {key.digest for key in spec.keys}
    for path in keys.iterdir():
        if path.name not in wanted and gateway_conf.DIGEST.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_conf(folder: Path, spec: Spec, programs: Programs) -> bool:
    """Whether it is another than before."""
    for name in ("tmp/body", "tmp/proxy", "tmp/fastcgi", "tmp/uwsgi", "tmp/scgi"):
        (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    # Beside us the workers read keys as this user, and no other.
    user = pwd.getpwuid(0).pw_name if os.geteuid() == 0 else ""
    text = gateway_conf.nginx_conf(spec, folder, module=programs.module, user=user, workers=_workers(), files=_files())
    content = {"gateway.js": gateway_conf.SCRIPT.read_bytes(), "nginx.conf": text.encode()}
    changed = [name for name, data in content.items() if not _holds(folder / name, data)]
    for name in changed:
        spool.write_synced(folder / name, content[name])
    return bool(changed)


def is_taken(folder: Path) -> bool:
    """Whether nginx was told of the configuration that is there: a keeper may be killed between writing and telling."""
    return _holds(folder / "taken", _digest(folder))


def note_taken(folder: Path) -> None:
    spool.write_synced(folder / "taken", _digest(folder))


def _digest(folder: Path) -> bytes:
    files = (folder / name for name in ("gateway.js", "nginx.conf"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest().encode()


def _workers() -> int:
    return max(2, min(8, (os.cpu_count() or 2) // 8))


def _files() -> int:
    """How many descriptors a worker may have: never more than our own hard limit, which nginx may not raise."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def argv(folder: Path, programs: Programs) -> list[str]:
    return [programs.nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")]


def fault(folder: Path, programs: Programs) -> str:
    """What nginx has against its configuration, "" for nothing."""
    done = _said(*argv(folder, programs), "-t")
    if "test is successful" in done:
        return ""
    lines = [line for line in done.splitlines() if "[emerg]" in line or "[crit]" in line]
    return (lines or done.splitlines() or ["nginx -t"])[0][:300]
